// Package browser_test opens the pages that the program writes in a real browser.
// The pages are made as a user makes them, through the command line.
package browser_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"vicinity.dev/vicinity/internal/cli"
	"vicinity.dev/vicinity/test/chromium"
)

var screenshots = flag.String("screenshots", "", "directory to save pictures of the pages in")

// report runs the program with --report and returns the page's file.
func report(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.html")
	var stdout, stderr bytes.Buffer
	args = append(args, "--report", file)
	if code := cli.Main(context.Background(), args, strings.NewReader(stdin), &stdout, &stderr); code != 0 {
		t.Fatalf("vicinity %s: exit code %d: %s", strings.Join(args, " "), code, &stderr)
	}
	return file
}

// hostile is a case with a name that runs a script where it is trusted.
const hostile = "name,a,b,c\n" +
	`"<img src=x onerror=""document.title='owned'""><script>document.title='owned'</script>",3 4,3 5,4 0` + "\n" +
	"plain,3 40,3 50,4 60\n"

// pages are the pages to open, with the least number of each kind of chart that
// they must have.
var pages = []struct {
	name   string
	stdin  string
	args   []string
	charts map[string]int
}{
	{
		name:   "static",
		args:   []string{"simulate", "--dataset", "representative", "--delivery", "groups", "--algorithm", "balanced,local,optimal"},
		charts: map[string]int{"histogram": 6, "stacks": 1, "flows": 3, "sketch": 3},
	},
	{
		name:   "hostile",
		stdin:  hostile,
		args:   []string{"simulate", "--dataset", "-", "--algorithm", "balanced,local"},
		charts: map[string]int{"histogram": 4, "stacks": 1, "flows": 2, "sketch": 4},
	},
	{
		name:   "dynamics",
		args:   []string{"simulate", "dynamics", "--scenario", "rolling-update,zone-lost", "--algorithm", "balanced,local,auto"},
		charts: map[string]int{"history": 14, "bars": 6},
	},
}

// widths are those of a laptop's window and of a phone.
var widths = []int{1280, 400}

func TestPagesInABrowser(t *testing.T) {
	b := openBrowser(t)
	for _, p := range pages {
		file := report(t, p.stdin, p.args...)
		for _, width := range widths {
			t.Run(fmt.Sprintf("%s at %d", p.name, width), func(t *testing.T) {
				b.visit(t, file, width)
				checkLayout(t, b, width)
				checkCharts(t, b, p.charts)
				for _, complaint := range b.complaints(t, file) {
					t.Errorf("the browser reports %s", complaint)
				}
				if *screenshots != "" {
					b.screenshot(t, filepath.Join(*screenshots, fmt.Sprintf("%s-%d.png", p.name, width)))
				}
			})
		}
	}
}

// checkLayout checks that the page is laid out and not wider than the window.
func checkLayout(t *testing.T, b *browser, width int) {
	t.Helper()
	var page struct {
		Title, Style  string
		Width, Height int
		Widest        string
	}
	b.evaluate(t, `(() => {
		const beyond = [...document.body.querySelectorAll("*")].find(e =>
			e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".wide, pre, svg"));
		return {
			title: document.title,
			style: getComputedStyle(document.querySelector(".card")).display,
			width: document.documentElement.scrollWidth,
			height: document.documentElement.scrollHeight,
			widest: beyond ? beyond.outerHTML.slice(0, 200) : "",
		};
	})()`, &page)
	if !strings.HasPrefix(page.Title, "Vicinity: ") {
		t.Errorf("the title is %q", page.Title)
	}
	if page.Width > width {
		t.Errorf("the page is %d wide in a window of %d", page.Width, width)
	}
	if page.Widest != "" {
		t.Errorf("this is beyond the window: %s", page.Widest)
	}
	if page.Height < 1000 {
		t.Errorf("the page is %d high, which cannot be all", page.Height)
	}
}

// checkCharts checks that charts are there and have a title and a size, as have the
// shapes in them that mean something, and that no label is cut off.
func checkCharts(t *testing.T, b *browser, least map[string]int) {
	t.Helper()
	var charts []struct {
		Kind, Title, Clipped string
		Width, Height        float64
		Marks                int
	}
	b.evaluate(t, `[...document.querySelectorAll("svg")].map(svg => {
		const box = svg.getBoundingClientRect();
		const marks = [...svg.querySelectorAll(".bar, .trace, .ribbon, circle")].filter(e => {
			const size = e.getBoundingClientRect();
			return size.width + size.height > 0 && getComputedStyle(e).visibility === "visible";
		});
		const clipped = [...svg.querySelectorAll("text")].find(e => {
			const size = e.getBoundingClientRect();
			return size.left < box.left - 1 || size.right > box.right + 1 || size.top < box.top - 1 || size.bottom > box.bottom + 1;
		});
		return {
			clipped: clipped ? clipped.textContent : "",
			kind: [...svg.classList].at(-1),
			title: document.getElementById(svg.getAttribute("aria-labelledby")).textContent,
			width: box.width, height: box.height, marks: marks.length,
		};
	})`, &charts)
	count := map[string]int{}
	for _, c := range charts {
		count[c.Kind]++
		if c.Title == "" {
			t.Errorf("a chart of kind %s has no title", c.Kind)
		}
		if c.Width < 10 || c.Height < 10 {
			t.Errorf("%s: the chart is %g by %g", c.Title, c.Width, c.Height)
		}
		if c.Clipped != "" {
			t.Errorf("%s: the label %q is cut off", c.Title, c.Clipped)
		}
		if c.Marks == 0 {
			t.Errorf("%s: the chart shows nothing", c.Title)
		}
	}
	for kind, want := range least {
		if count[kind] < want {
			t.Errorf("%d charts of kind %s, want at least %d", count[kind], kind, want)
		}
	}
}

func TestPictureShowsTheTrafficOfOneZone(t *testing.T) {
	b := openBrowser(t)
	file := report(t, hostile, "simulate", "--dataset", "-", "--algorithm", "balanced,local", "--picture", "plain")
	b.visit(t, file, 1280)
	var dimmed struct{ Before, One, After, Bands int }
	b.evaluate(t, `(() => {
		const dim = () => document.querySelectorAll(".ribbon.dim").length;
		const press = (show) => document.querySelector('[data-show="' + show + '"]').click();
		const seen = {before: dim(), bands: document.querySelectorAll(".ribbon").length};
		press(1);
		seen.one = dim();
		press(0);
		seen.after = dim();
		return seen;
	})()`, &dimmed)
	if dimmed.Before != 0 || dimmed.After != 0 {
		t.Errorf("%d bands are dimmed before a zone is chosen and %d after, want none", dimmed.Before, dimmed.After)
	}
	if dimmed.One == 0 || dimmed.One >= dimmed.Bands {
		t.Errorf("%d of %d bands are dimmed while a zone is chosen, want some", dimmed.One, dimmed.Bands)
	}
	for _, complaint := range b.complaints(t, file) {
		t.Errorf("the browser reports %s", complaint)
	}
}

func TestPagesAreCompleteWithoutScripts(t *testing.T) {
	b := openBrowser(t)
	if err := b.Call("Emulation.setScriptExecutionDisabled", chromium.Object{"value": true}, nil); err != nil {
		t.Fatal(err)
	}
	b.visit(t, report(t, "", "simulate", "--dataset", "representative", "--algorithm", "balanced,local"), 1280)
	checkCharts(t, b, map[string]int{"histogram": 4, "stacks": 1, "flows": 2})
	var hidden bool
	b.evaluate(t, `document.querySelector(".choice").getClientRects().length === 0`, &hidden)
	if !hidden {
		t.Error("the buttons are shown, which do nothing without the script")
	}
}

func TestTheChecksFindWhatIsWrong(t *testing.T) {
	b := openBrowser(t)
	file := report(t, "", "simulate", "--dataset", "representative", "--algorithm", "balanced")
	b.visit(t, file, 1280)
	var done bool
	b.evaluate(t, `(() => {
		console.error("a word");
		document.body.append(Object.assign(new Image(), {src: "https://vicinity.invalid/pixel.png"}));
		return true;
	})()`, &done)
	found := strings.Join(b.complaints(t, file), "\n")
	for _, want := range []string{"a word", "Content Security Policy"} {
		if !strings.Contains(found, want) {
			t.Errorf("no complaint about %q in: %s", want, found)
		}
	}
}
