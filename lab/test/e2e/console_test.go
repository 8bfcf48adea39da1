package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/load"
	"vicinity.dev/vicinity/test/chromium"
	"vicinity.dev/vicinity/test/kube"
)

// consoleArea covers the browser views of "vicinity console", in a cluster with traffic.
func consoleArea() area {
	return area{
		name:  "console",
		setup: zones,
		promises: append([]promise{
			{name: "as-explained", keep: consoleAsExplained, within: 4 * time.Minute, tier: inTest},
			{name: "live", keep: consoleLive, within: 3 * time.Minute},
			{name: "pages", keep: consolePagesRead, within: 5 * time.Minute},
		}, consoleScreenshots()...),
	}
}

type servedConsole struct {
	address *url.URL // of the first page, with the token
	token   string
}

// console starts a console as a user does, until the context ends.
func (s *scene) console(ctx context.Context) (*servedConsole, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(root, "bin", "vicinity"), "console", "--kubeconfig", s.cluster.Kubeconfig(), "--traffic-interval", "2s")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the console ended: %w", err), cmd.Wait(), errors.New(complaint.String()))
	}
	go func() { _ = cmd.Wait() }() // the interrupt makes its exit code non-zero
	address, err := url.Parse(strings.TrimSpace(line))
	if err != nil {
		return nil, err
	}
	return &servedConsole{address, address.Query().Get("token")}, nil
}

// page returns the address of a page.
func (c *servedConsole) page(path string) string { return "http://" + c.address.Host + path }

// view reads a view as JSON.
func (c *servedConsole) view(ctx context.Context, path string, view any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.page("/api/v1"+path), nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s: %s", path, answer.Status, text)
	}
	whole := struct {
		About struct{ Waiting []string }
		View  any
	}{View: view}
	if err := json.Unmarshal(text, &whole); err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	if len(whole.About.Waiting) > 0 {
		return fmt.Errorf("the console is still reading %s", strings.Join(whole.About.Waiting, ", "))
	}
	return nil
}

// vicinityJSON runs a vicinity command and returns its output as JSON.
func (s *scene) vicinityJSON(ctx context.Context, args ...string) (map[string]any, error) {
	text, err := s.vicinity(ctx, append(args, "-o", "json")...)
	if err != nil {
		return nil, err
	}
	var output map[string]any
	return output, json.Unmarshal(text, &output)
}

// consoleObjects makes an echo Service that vicinity-proxy serves near its clients, a headless
// Service, and a budget.
func (s *scene) consoleObjects(ctx context.Context) error {
	if err := s.deploy(ctx); err != nil {
		return err
	}
	const objects = `apiVersion: v1
kind: Service
metadata:
  name: members
  annotations: {endpointslice.kubernetes.io/same-zone: Prefer}
spec:
  clusterIP: None
  selector: {app: echo}
  ports: [{name: http, port: 8080}]
---
apiVersion: vicinity.dev/v1alpha1
kind: TopologyDisruptionBudget
metadata:
  name: echo
spec:
  selector: {matchLabels: {app: echo}}
  nodeSelectorTerm: {matchExpressions: [{key: topology.kubernetes.io/zone, operator: Exists}]}
  maxUnavailable: 1
  maxUnavailableDomains: 1
`
	if err := s.Apply(ctx, s.namespace, objects); err != nil {
		return err
	}
	return s.handOverEcho(ctx, preferZone)
}

// browser opens a browser at a console.
func (c *servedConsole) browser(ctx context.Context) (b *chromium.Browser, end func(), err error) {
	folder, err := os.MkdirTemp("", "chromium-")
	if err != nil {
		return nil, nil, err
	}
	if b, err = chromium.Open(ctx, folder); err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(folder))
	}
	end = func() {
		_ = b.Close()
		_ = os.RemoveAll(folder)
	}
	if err := b.Visit(c.address.String(), 1280); err != nil {
		end()
		return nil, nil, err
	}
	if err := b.Until(ctx, `location.pathname == "/cluster" && document.readyState == "complete"`); err != nil {
		end()
		return nil, nil, err
	}
	return b, end, nil
}

// consoleAsExplained compares the console's views with the output of commands.
func consoleAsExplained(ctx context.Context, s *scene) (string, error) {
	check(s.consoleObjects(ctx))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	c := must(s.console(ctx))
	compared := 0
	// The cluster may change between reading a view and the command's output.
	same := func(what string, look func(context.Context) (got, want any, err error)) error {
		compared++
		return kube.Wait(ctx, "the console to show the same as "+what, func(ctx context.Context) (string, error) {
			got, want, err := look(ctx)
			if err != nil || reflect.DeepEqual(got, want) {
				return "", err
			}
			return fmt.Sprintf("the console has %v, the command %v", got, want), nil
		})
	}
	for _, service := range []string{"echo", "members"} {
		check(same("vicinity explain svc/"+service, func(ctx context.Context) (got, want any, err error) {
			var view struct{ Explanation map[string]any }
			if err := c.view(ctx, "/services/"+s.namespace+"/"+service, &view); err != nil {
				return nil, nil, err
			}
			output, err := s.vicinityJSON(ctx, "explain", "svc/"+service, "-n", s.namespace)
			return view.Explanation, output, err
		}))
	}
	check(same("vicinity status", func(ctx context.Context) (got, want any, err error) {
		var view struct{ Services []map[string]any }
		if err := c.view(ctx, "/services?namespace="+s.namespace, &view); err != nil {
			return nil, nil, err
		}
		rows := []any{}
		for _, row := range view.Services {
			for _, more := range []string{"measuredInZone", "connectionsPerSecond", "handOver"} {
				delete(row, more)
			}
			rows = append(rows, row)
		}
		output, err := s.vicinityJSON(ctx, "status", "-n", s.namespace)
		return rows, output["services"], err
	}))
	pods := must(s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=client"}))
	client := s.namespace + "/" + pods.Items[0].Name
	check(same("vicinity explain dns", func(ctx context.Context) (got, want any, err error) {
		var view struct{ Explanation map[string]any }
		name := "members." + s.namespace
		if err := c.view(ctx, "/names?name="+name+"&from="+url.QueryEscape(client), &view); err != nil {
			return nil, nil, err
		}
		output, err := s.vicinityJSON(ctx, "explain", "dns", name, "--from", client)
		return view.Explanation, output, err
	}))
	return fmt.Sprintf("%d views equal the output of explain, status and explain dns", compared), nil
}

// consoleLive changes the cluster and waits until an open page shows it without a reload.
func consoleLive(ctx context.Context, s *scene) (string, error) {
	check(s.consoleObjects(ctx))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	c := must(s.console(ctx))
	b, end, err := c.browser(ctx)
	check(err)
	defer end()
	var longest time.Duration
	changes := 0
	shows := func(path, shown string, change func() error) error {
		if err := b.Visit(c.page(path), 1280); err != nil {
			return err
		}
		if err := b.Until(ctx, `document.getElementById("connection").textContent != ""`); err != nil {
			return err
		}
		var before bool
		if err := b.Evaluate(`(() => { window.notReloaded = true; return Boolean(`+shown+`); })()`, &before); err != nil || before {
			return errors.Join(err, fmt.Errorf("the page shows it before the change: %s", shown))
		}
		if err := change(); err != nil {
			return err
		}
		began := time.Now()
		if err := b.Until(ctx, shown+" && window.notReloaded"); err != nil {
			return err
		}
		longest = max(longest, time.Since(began))
		changes++
		return nil
	}
	service := "/services/" + s.namespace + "/echo"
	has := func(text string) string {
		return fmt.Sprintf("document.getElementById('live').textContent.includes(%q)", text)
	}
	for _, one := range []struct {
		path, shown string
		change      func() error
	}{
		{service, has("same-zone: Require"), func() error {
			return s.PatchService(ctx, s.namespace, "echo", annotated(zoneAnnotation, "Require"))
		}},
		{"/services?namespace=" + s.namespace + "&q=another", has("another"), func() error {
			return s.Apply(ctx, s.namespace, "apiVersion: v1\nkind: Service\nmetadata: {name: another}\nspec: {ports: [{port: 80}]}\n")
		}},
		{"/disruption?q=" + s.namespace + "/later", has("/later"), func() error {
			return s.Apply(ctx, s.namespace, "apiVersion: vicinity.dev/v1alpha1\nkind: TopologyDisruptionBudget\nmetadata: {name: later}\nspec: {selector: {matchLabels: {app: none}}, maxUnavailable: 1}\n")
		}},
	} {
		check(shows(one.path, one.shown, one.change))
	}
	const most = 5 * time.Second
	if longest > most {
		return "", fmt.Errorf("a change was on the page after %s; at most %s is allowed", longest.Round(time.Millisecond), most)
	}
	return fmt.Sprintf("%d changes of the cluster appear on open pages within %s, without a reload", changes, longest.Round(time.Millisecond)), nil
}

// consolePages returns all pages of a scene with consoleObjects.
func (s *scene) consolePages() []string {
	return []string{
		"/cluster", "/services", "/services/" + s.namespace + "/echo", "/services/" + s.namespace + "/members",
		"/names?name=members." + s.namespace + "&from=node/" + s.cluster.Shape().Nodes()[0].Name,
		"/disruption", "/whatif?service=" + s.namespace + "/echo&zone=" + s.cluster.Shape().Zones[0].Name,
	}
}

// stops steps through the page with the keyboard, from the first link, which skips to the content,
// to the last control. Each must visibly have the focus.
func stops(b *chromium.Browser) (all int, err error) {
	if err := b.Evaluate(`document.querySelectorAll("a[href], button, input:not([type=hidden]), select, summary, [tabindex='0']").length`, &all); err != nil {
		return 0, err
	}
	for i := range all {
		if err := b.PressTab(); err != nil {
			return 0, err
		}
		var at struct {
			Text, Outline string
			Seen          bool
		}
		err := b.Evaluate(`(() => { const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect();
			return {text: e.id || e.textContent.trim().slice(0, 40) || e.name || e.tagName, outline: s.outlineStyle + " " + s.outlineWidth,
				seen: e !== document.body && s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2 && r.width > 0 && r.left >= 0}; })()`, &at)
		if err != nil {
			return 0, err
		}
		if !at.Seen {
			return 0, fmt.Errorf("stop %d of %d, %q, does not visibly have the focus (outline %s)", i+1, all, at.Text, at.Outline)
		}
		if i == 0 && at.Text != "Skip to the content" {
			return 0, fmt.Errorf("the first stop is %q, want the link to the content", at.Text)
		}
	}
	return all, nil
}

// waitOthersGone waits until the namespaces of earlier promises are gone.
func (s *scene) waitOthersGone(ctx context.Context) error {
	return kube.Wait(ctx, "the namespaces of earlier promises to be gone", func(ctx context.Context) (string, error) {
		list, err := s.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		if i := slices.IndexFunc(list.Items, func(n corev1.Namespace) bool { return n.DeletionTimestamp != nil }); i >= 0 {
			return list.Items[i].Name + " is not", nil
		}
		return "", nil
	})
}

// consolePagesRead opens all pages in windows of a laptop and of a phone, light and dark. Pages
// send no requests to other hosts and fit the window. Their texts have contrast, screen readers can
// follow their structure, and the keyboard alone can use them.
func consolePagesRead(ctx context.Context, s *scene) (string, error) {
	check(s.consoleObjects(ctx))
	// A row that vanishes while the test tabs through a page would count as a missing stop.
	check(s.waitOthersGone(ctx))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	c := must(s.console(ctx))
	b, end, err := c.browser(ctx)
	check(err)
	defer end()
	least, requests, looks, focused := 21.0, 0, 0, 0
	for _, scheme := range []string{"light", "dark"} {
		check(b.Prefers("prefers-color-scheme", scheme))
		for _, path := range s.consolePages() {
			for _, width := range []int{1280, 375} {
				check(b.Visit(c.page(path), width))
				where := fmt.Sprintf("%s, %s, %d wide", path, scheme, width)
				complaints := must(b.Complaints(func(of string) bool {
					requests++
					return strings.HasPrefix(of, c.page("/"))
				}))
				var page struct {
					Width    int
					Contrast float64
					Worst    string
					Faults   []string
				}
				check(b.Evaluate(readability, &page))
				faults := slices.Concat(complaints, page.Faults)
				if page.Width > width {
					faults = append(faults, fmt.Sprintf("the page is %d wide", page.Width))
				}
				if page.Contrast < 4.5 {
					faults = append(faults, fmt.Sprintf("the contrast of %q is %.2f to 1; at least 4.5 is needed", page.Worst, page.Contrast))
				}
				if len(faults) > 0 {
					return "", fmt.Errorf("%s: %s", where, strings.Join(faults, "; "))
				}
				least = min(least, page.Contrast)
				looks++
				if width == 1280 && scheme == "light" {
					n, err := stops(b)
					if err != nil {
						return "", fmt.Errorf("%s: %w", where, err)
					}
					focused += n
				}
			}
		}
	}
	return fmt.Sprintf("%d looks at %d pages, light and dark, 1280 and 375 wide: %d requests, none to other hosts; the contrast of texts is at least %.1f to 1, and %d stops visibly have the focus", looks, len(s.consolePages()), requests, least, focused), nil
}

// readability measures a page: its width, the least contrast of its texts, and faults of its
// structure.
const readability = `(() => {
	const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
	const rgb = (color) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
	const light = (c) => c.slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const ground = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; } return [255, 255, 255, 255]; };
	let contrast = 21, worst = "";
	for (const e of document.body.querySelectorAll("*")) {
		const own = [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.textContent.trim()).join("");
		if (!own || !e.getClientRects().length || e.closest(".vh, .skip, datalist, option")) continue;
		const [a, b] = [light(rgb(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
		const ratio = (a + 0.05) / (b + 0.05);
		if (ratio < contrast) { contrast = ratio; worst = own.slice(0, 60); }
	}
	const faults = [];
	const one = (selector) => { if (document.querySelectorAll(selector).length !== 1) faults.push("there is not one " + selector); };
	["h1", "main", "header", "footer", "html[lang]", "title", "[aria-live=polite]", "header nav[aria-label]", "a[aria-current]"].forEach(one);
	for (const t of document.querySelectorAll("table")) {
		if (!t.caption || !t.caption.textContent.trim()) faults.push("a table has no caption");
		if ([...t.querySelectorAll("th")].some(th => !th.scope)) faults.push("a head of a table has no scope");
	}
	for (const e of document.querySelectorAll("input:not([type=hidden]), select")) if (!e.labels.length) faults.push("a field has no label: " + e.name);
	for (const e of document.querySelectorAll("[aria-labelledby]")) if (!document.getElementById(e.getAttribute("aria-labelledby"))) faults.push("a label is missing: " + e.getAttribute("aria-labelledby"));
	const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
	if (new Set(ids).size !== ids.length) faults.push("ids are given twice");
	let level = 0;
	for (const h of document.querySelectorAll("h1, h2, h3, h4")) { const l = Number(h.tagName[1]); if (l > level + 1) faults.push("a heading skips a level: " + h.textContent); level = l; }
	return {width: document.documentElement.scrollWidth, contrast, worst, faults};
})()`

// screenshotsVariable names the folder for the documentation's screenshots. "make screenshots" sets
// it.
const screenshotsVariable = "E2E_SCREENSHOTS"

// consoleScreenshots takes screenshots if a folder for them is set.
func consoleScreenshots() []promise {
	if os.Getenv(screenshotsVariable) == "" {
		return nil
	}
	return []promise{{name: "screenshots", keep: takeScreenshots, within: 4 * time.Minute}}
}

// takeScreenshots takes screenshots of a Service with traffic.
func takeScreenshots(ctx context.Context, s *scene) (string, error) {
	check(s.consoleObjects(ctx))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	c := must(s.console(ctx))
	ended := make(chan struct{})
	var failed error
	go func() {
		defer close(ended)
		_, failed = s.load(ctx, lab.LoadOptions{Plan: load.Plan{Rate: 200, Duration: 3 * time.Minute}})
	}()
	b, end, err := c.browser(ctx)
	check(err)
	defer end()
	folder := os.Getenv(screenshotsVariable)
	var taken int
	service := "/services/" + s.namespace + "/echo"
	measured := func(ctx context.Context) error {
		if err := b.Visit(c.page(service), 1280); err != nil {
			return err
		}
		// Connections from before the plan still count for a while.
		return b.Until(ctx, `document.querySelector("table.matrix .m") && [...document.querySelectorAll("table.matrix td.stays .m")].every(e => parseFloat(e.lastChild.textContent) > 32)`)
	}
	check(measured(ctx))
	for _, picture := range []struct {
		name, path, scheme string
		width, height      int
	}{
		{"console-service", service, "light", 1100, 1000},
		{"console-cluster", "/cluster", "light", 1100, 820},
		{"console-whatif-dark", "/whatif?service=" + s.namespace + "/echo&zone=" + s.cluster.Shape().Zones[0].Name, "dark", 1100, 900},
	} {
		check(b.Prefers("prefers-color-scheme", picture.scheme))
		check(b.Visit(c.page(picture.path), picture.width))
		check(b.Screenshot(filepath.Join(folder, picture.name+".png"), picture.height))
		taken++
	}
	select {
	case <-ended:
		return "", errors.Join(errors.New("the traffic ended before the screenshots were taken"), failed)
	default:
		stop()
		<-ended
	}
	return fmt.Sprintf("%d screenshots are in %s", taken, folder), nil
}
