package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// chromium finds a browser. Without one the tests are passed over, but not in CI, where
// scripts/setup.sh browser has installed it.
func chromium(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal("there is no Chromium: scripts/setup.sh browser installs it")
	}
	t.Skip("there is no Chromium, so the page is not tested: scripts/setup.sh browser installs it")
	return ""
}

// patience bounds a test in the browser, on a machine that has much else to do.
const patience = 8 * time.Minute

// soon is how long anything may take that is done in a moment where there is time.
const soon = time.Minute

// tab is a page in a browser of its own.
type tab struct {
	t   testing.TB
	ctx context.Context

	mu     sync.Mutex
	faults []string // errors in the console, and exceptions
}

type screen struct {
	width, height int
	theme         string // light or dark
}

var (
	desk  = screen{1280, 800, "light"}
	phone = screen{390, 844, "light"}
)

// open starts a browser and opens a path of the page, signed in with a token.
func open(t testing.TB, p *pool, s screen, token, path string) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium(t)), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("hide-scrollbars", false))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx}
	b.do(chromedp.EmulateViewport(int64(s.width), int64(s.height)))
	ok(t, chromedp.Listen(ctx, b.listen))
	tell(b, log.Enable, cdp.Empty{})
	tell(b, runtime.Enable, cdp.Empty{})
	b.theme(s.theme)
	if token != "" {
		tell(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
			Source: fmt.Sprintf("try { sessionStorage.setItem('gpupool.token', %q) } catch {}", token)})
	}
	b.do(chromedp.Navigate(p.url + path))
	return b
}

// tell sends a command of the protocol.
func tell[P, R any](b *tab, cmd cdp.Command[P, R], params P) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, cmd, params)
	ok(b.t, err)
}

func (b *tab) listen(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch ev := ev.(type) {
	case *runtime.EventExceptionThrown:
		b.faults = append(b.faults, fmt.Sprintf("%s %+v", ev.ExceptionDetails.Text, ev.ExceptionDetails.Exception))
	case *log.EventEntryAdded:
		if ev.Entry.Level == log.EntryLevelError {
			b.faults = append(b.faults, ev.Entry.Text+" "+ev.Entry.URL)
		}
	}
}

// forgive drops errors that the test has provoked: the browser notes refusals too.
func (b *tab) forgive(word string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = slices.DeleteFunc(b.faults, func(f string) bool { return strings.Contains(f, word) })
}

// clean wants no error in the console, such as what the page's policy refuses.
func (b *tab) clean() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.faults {
		b.t.Errorf("the browser complains: %s", f)
	}
	b.faults = nil
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ok(b.t, chromedp.Do(b.ctx, actions...))
}

func (b *tab) theme(name string) {
	b.t.Helper()
	tell(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
}

// js runs an expression, waits for it, and returns its value.
func js[T any](b *tab, expression string) T {
	b.t.Helper()
	out, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%.200s: %s", expression, err)
	}
	return out
}

// exec runs statements for what they do.
func (b *tab) exec(statements string) {
	b.t.Helper()
	js[bool](b, "(async () => {"+statements+"; return true})()")
}

// sees waits until the page shows a text.
func (b *tab) sees(text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("document.body?.innerText.includes(%q)", text))
}

// until waits until an expression is true.
func (b *tab) until(expression string) {
	b.t.Helper()
	for end := time.Now().Add(soon); ; time.Sleep(30 * time.Millisecond) {
		if js[bool](b, "Boolean("+expression+")") {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("after %s it is still not so that %s; at %s the page says:\n%s", soon, expression, js[string](b, "location.href"), js[string](b, "document.body.innerText"))
		}
	}
}

// click clicks on what a selector names, as a user would.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.until(fmt.Sprintf("document.querySelector(%q) && !document.querySelector(%q).disabled", selector, selector))
	b.do(chromedp.Click(chromedp.CSS(selector)))
}

// press presses one key that has a text, in one event, as a browser does: so the page can
// keep that text from being typed.
func (b *tab) press(key string) {
	b.t.Helper()
	tell(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: key, Text: key})
	tell(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyUp, Key: key})
}

// keys types.
func (b *tab) keys(text string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(text))
}

// visit goes to another view without loading the page again.
func (b *tab) visit(path string) {
	b.t.Helper()
	b.exec(fmt.Sprintf("history.pushState(null, '', %q); dispatchEvent(new CustomEvent('gpupool:moved'))", path))
}

// at wants the address to be a path with a query.
func (b *tab) at(path string) {
	b.t.Helper()
	b.until(fmt.Sprintf("location.pathname + location.search === %q", path))
}

// picture stores what is seen in the folder that GPUPOOL_SHOTS names, if it names one.
func (b *tab) picture(name string) {
	b.t.Helper()
	dir := os.Getenv("GPUPOOL_SHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	ok(b.t, err)
	ok(b.t, os.MkdirAll(dir, 0o755))
	ok(b.t, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644))
}

// fits wants no need to scroll sideways.
func (b *tab) fits(where string) {
	b.t.Helper()
	over := js[[]string](b, `document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.unseen')).map(e => e.tagName + '.' + e.className).slice(0, 8)`)
	if len(over) > 0 {
		b.t.Errorf("%s: one has to scroll sideways, for %v", where, over)
	}
}

// accessible runs axe and wants no serious or critical fault.
func (b *tab) accessible(where string) {
	b.t.Helper()
	source, err := os.ReadFile("testdata/axe/axe.min.js")
	ok(b.t, err)
	if !js[bool](b, "Boolean(window.axe)") {
		js[bool](b, string(source)+"; true")
	}
	found := js[string](b, `axe.run(document, {resultTypes: ['violations']}).then(r => JSON.stringify(r.violations.map(v => ({id: v.id, impact: v.impact, help: v.help, nodes: v.nodes.slice(0, 4).map(n => n.html.slice(0, 160) + ' ' + (n.any[0]?.message || ''))}))))`)
	var faults []struct {
		ID, Impact, Help string
		Nodes            []string
	}
	ok(b.t, json.Unmarshal([]byte(found), &faults))
	for _, f := range faults {
		text := fmt.Sprintf("%s: axe finds (%s) %s: %s\n  %s", where, f.Impact, f.ID, f.Help, strings.Join(f.Nodes, "\n  "))
		if f.Impact == "serious" || f.Impact == "critical" {
			b.t.Error(text)
		} else {
			b.t.Log(text)
		}
	}
}
