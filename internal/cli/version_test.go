package cli

import (
	"bytes"
	"runtime"
	"runtime/debug"
	"testing"

	"vicinity.dev/vicinity/internal/kit/version"
)

func TestVersionAsText(t *testing.T) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	for _, test := range []struct {
		name string
		info *debug.BuildInfo
		text string
	}{
		{
			name: "installed from a release",
			info: &debug.BuildInfo{GoVersion: "go1.26.1", Main: debug.Module{Version: "v1.2.3"}},
			text: "vicinity v1.2.3 go1.26.1 " + platform,
		},
		{
			name: "built from a changed tree",
			info: &debug.BuildInfo{GoVersion: "go1.26.1", Main: debug.Module{Version: "v0.0.0-20260102030405-0123456789ab+dirty"}, Settings: []debug.BuildSetting{
				{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"},
				{Key: "vcs.modified", Value: "true"},
			}},
			text: "vicinity devel (revision 0123456789ab, modified) go1.26.1 " + platform,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := printVersion(&out, version.Of(test.info), &outputFlag{form: "text", allowed: []string{"text"}}); err != nil {
				t.Fatal(err)
			}
			if out.String() != test.text+"\n" {
				t.Errorf("got  %q\nwant %q", out.String(), test.text+"\n")
			}
		})
	}
}
