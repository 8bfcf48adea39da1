package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// EnsureNft makes sure that the program nft exists, which kube-proxy needs. As root on
// Debian it installs it and says so on out; elsewhere the error says what to do.
func EnsureNft(ctx context.Context, out io.Writer) error {
	if hasNft() {
		return nil
	}
	release, err := os.ReadFile("/etc/os-release")
	if err != nil || !isDebian(release) || os.Geteuid() != 0 {
		return errors.New("kube-proxy needs the program nft, which is not installed: install the package nftables, or run the lab with --proxy=none")
	}
	if _, err := fmt.Fprintln(out, "installing Debian's nftables, which kube-proxy needs"); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"update", "-qq"},
		{"-o", "DPkg::Lock::Timeout=300", "install", "-qq", "-y", "--no-install-recommends", "nftables"},
	} {
		var output bytes.Buffer
		install := exec.CommandContext(ctx, "apt-get", args...)
		install.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		install.Stdout, install.Stderr = &output, &output
		if err := install.Run(); err != nil {
			return fmt.Errorf("installing nftables by apt-get: %w: %s", err, lastLine(output.Bytes()))
		}
	}
	if !hasNft() {
		return errors.New("nftables was installed by apt-get, and there is still no program nft; run the lab with --proxy=none")
	}
	return nil
}

// systemPath may be missing in the PATH of users other than root.
const systemPath = "/usr/sbin"

func hasNft() bool {
	for _, name := range []string{"nft", systemPath + "/nft"} {
		if _, err := exec.LookPath(name); err == nil {
			return true
		}
	}
	return false
}

func isDebian(release []byte) bool {
	for line := range strings.Lines(string(release)) {
		if strings.TrimSpace(line) == "ID=debian" {
			return true
		}
	}
	return false
}

func lastLine(text []byte) string {
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.TrimSpace(lines[len(lines)-1]))
}
