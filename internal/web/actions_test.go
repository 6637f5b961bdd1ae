package web_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/gpupool/gpupool/internal/api/apitype"
)

// TestActions submits a task in the page and does everything to it that can be done,
// on a desk and on a phone.
func TestActions(t *testing.T) {
	chromium(t)
	p := serve(t, "1x2xH100-80GB", "elastic:\n  scan_every: 1s\n")
	p.tenant("llm", apitype.TenantSpec{})
	for _, s := range []screen{desk, phone} {
		b := open(t, p, s, p.token, "/submit")
		b.sees("Command")
		b.until("document.querySelector('select[name=tenant] option[value=llm]')")
		b.exec("document.querySelector('select[name=tenant]').value = 'llm'")
		b.do(chromedp.SendKeys(chromedp.CSS("input[name=gpus]"), "5"), chromedp.SendKeys(chromedp.CSS("textarea"), "echo hello from the page; sleep 3600"))
		b.click(".submit button.main")
		b.sees("no way to ever run") // in the server's words, and nothing typed is lost
		b.forgive("422")
		b.exec("const g = document.querySelector('input[name=gpus]'); g.value = '1'; g.dispatchEvent(new Event('input', {bubbles: true}))")
		b.do(chromedp.SendKeys(chromedp.CSS("input[name=name]"), "from-the-page"))
		b.exec("document.querySelector('input[name=hold]').click()")
		b.click(".submit button.main")
		b.sees("Why it waits")
		id, err := strconv.ParseUint(strings.TrimPrefix(js[string](b, "location.pathname"), "/tasks/"), 10, 64)
		ok(t, err)
		b.sees("it is held until someone releases it")
		b.click("[data-do=release]")
		p.reach(id, "running")
		b.sees("hello from the page")
		b.click("[data-do=checkpoint]")
		b.sees("has saved its work")
		b.click("[data-do=park]")
		b.click("dialog button[value=yes]")
		p.reach(id, "parked")
		b.click("[data-do=wake]")
		p.reach(id, "running")
		b.sees("woken by an admin")
		b.click("[data-do=resize]")
		b.do(chromedp.SendKeys(chromedp.CSS("dialog input"), "2"))
		b.click("dialog button[value=yes]")
		b.until("/fault/.test(document.querySelector('.says').className) && document.querySelector('.says').innerText.length > 20") // it did not agree to that
		b.forgive("/resize")
		b.click("[data-do=preempt]")
		b.click("dialog button[value=no]") // asked back, and left
		b.until("!document.querySelector('dialog')")
		b.click("[data-do=preempt]")
		b.click("dialog button[value=yes]")
		b.until("[...document.querySelectorAll('.told li')].filter(x => /gets GPU/.test(x.innerText)).length >= 3")
		p.reach(id, "running")
		b.click("[data-do=cancel]")
		b.click("dialog button[value=yes]")
		p.reach(id, "cancelled")
		b.sees("How it ended")
		b.until("!document.querySelector('[data-do=cancel]')?.checkVisibility()")

		b.visit("/pools")
		before := js[string](b, "(async () => { while (!document.querySelector('.badge.mode')) await new Promise(r => setTimeout(r, 20)); return document.querySelector('.badge.mode').innerText })()")
		b.exec("const s = document.querySelector('[data-do=mode]'); s.value = s.value === 'dynamic' ? 'shadow' : 'dynamic'; s.dispatchEvent(new Event('change'))")
		b.click("dialog button[value=yes]")
		b.until(fmt.Sprintf("document.querySelector('.badge.mode').innerText !== %q", before))
		b.clean()
	}
}

// TestFilters wants filters in the address, and the address to bring them back.
func TestFilters(t *testing.T) {
	chromium(t)
	p := serve(t, "2x8xH100-80GB,1x4xH100-80GB", settings)
	p.town()
	b := open(t, p, desk, p.token, "/?pool=serving&tenant=speech")
	b.sees("2 of 20 GPUs fit the filters")
	b.until("document.querySelector('[data-key=filter-pool]').value === 'serving'")
	b.click(".clear")
	b.sees("20 GPUs on 3 hosts")
	b.at("/")
	b.press("/")
	b.until("document.activeElement.id === 'search'")
	b.keys("fake-0003")
	b.at("/?q=fake-0003")
	b.sees("4 of 20 GPUs fit the filters")
	b.do(chromedp.Reload())
	b.sees("4 of 20 GPUs fit the filters")
	b.exec("const s = document.querySelector('[data-key=filter-state]'); s.value = 'idle'; s.dispatchEvent(new Event('change'))")
	b.at("/?q=fake-0003&state=idle")
	b.visit("/tasks?state=failed")
	b.sees("crash")
	b.until("document.querySelectorAll('tbody tr').length === 1")
	b.visit("/tasks?tenant=speech&q=asr")
	b.until("document.querySelectorAll('tbody tr').length === 4")
	b.visit("/queue?q=reserve+nothing+like+it")
	b.sees("No waiting task fits the search")
	b.exec("history.back()")
	b.at("/tasks?tenant=speech&q=asr")
	b.clean()
}

// TestKeyboard gets everywhere without a mouse.
func TestKeyboard(t *testing.T) {
	chromium(t)
	p := serve(t, "2x8xH100-80GB,1x4xH100-80GB", settings)
	running, _, _ := p.town()
	b := open(t, p, desk, p.token, "/")
	b.sees("20 GPUs on 3 hosts")
	for key, path := range map[string]string{"q": "/queue", "p": "/pools", "t": "/tenants", "e": "/events", "s": "/savings", "a": "/tasks", "n": "/submit", "m": "/"} {
		b.exec("document.activeElement?.blur?.()")
		b.press("g")
		b.press(key)
		b.at(path)
	}
	b.visit("/")
	b.press("?")
	b.sees("go to Queue")
	b.accessible("the help")
	b.picture("help-1280-light")
	b.keys(kb.Escape)
	b.until("!document.querySelector('dialog')")

	b.exec("document.querySelector('.sheet').focus()")
	b.keys(kb.ArrowRight)
	b.until("/^GPU 0 /.test(document.querySelector('#said').textContent)")
	b.keys(kb.ArrowRight)
	b.until("/^GPU 1 /.test(document.querySelector('#said').textContent)")
	b.keys(kb.ArrowDown)
	b.until("/^GPU 9 /.test(document.querySelector('#said').textContent)")
	b.keys(kb.ArrowUp)
	b.until("/^GPU 1 .*llm/.test(document.querySelector('#said').textContent)")
	b.keys(kb.Enter)
	b.until("document.activeElement.classList.contains('panel')")
	b.until(fmt.Sprintf("document.querySelector('.panel a[href=\"/tasks/%d\"]')", running))
	b.accessible("the panel")
	b.picture("panel-1280-light")
	b.keys(kb.Escape)
	b.until("document.querySelector('.panel').hidden && document.activeElement.classList.contains('sheet')")

	// The pointer finds the same GPU, and what is drawn there has a colour.
	b.exec("document.activeElement.blur()")
	at := js[[]float64](b, "(() => { const r = document.querySelector('.sheet').getBoundingClientRect(); return [r.left + 20, r.top + 34 + 40] })()")
	b.do(chromedp.MouseClickXY(at[0], at[1]))
	b.until("document.querySelector('.panel h2')?.innerText === 'GPU 0'")
	tell(b, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: input.DispatchMouseEventTypeMouseMoved, X: at[0] + 5, Y: at[1]})
	b.until("document.querySelector('.tip strong')?.innerText.startsWith('GPU 0')")
	b.until("(() => { const c = document.querySelector('.sheet canvas'), d = c.getContext('2d').getImageData(0, 0, c.width, 200).data; return new Set(new Uint32Array(d.buffer)).size > 8 })()")

	// A theme that was chosen stays.
	b.click(".theme")
	b.until("document.documentElement.dataset.theme === 'dark'")
	b.do(chromedp.Reload())
	b.until("document.documentElement.dataset.theme === 'dark'")
	b.clean()
}

// TestLive wants the page to follow without a reload: what is placed, freed, and what
// happened while the connection was away.
func TestLive(t *testing.T) {
	chromium(t)
	p := serve(t, "1x2xH100-80GB", "")
	b := open(t, p, desk, p.token, "/")
	b.sees("2 GPUs on 1 host")
	b.until("gpupool.store.link === 'live' && gpupool.store.loaded")
	b.exec("gpupool.store.loadMap = () => {}") // only events from now on
	l, err := p.admin.CreateLease(t.Context(), apitype.LeaseSpec{Tenant: "default", GPUs: "3g.40gb"}, "")
	ok(t, err)
	b.until("gpupool.store.fleet.gpus[0].slices.length === 1 && gpupool.store.fleet.gpus[0].slices[0].units === 4")
	b.exec("gpupool.store.stream.abort.abort()") // as when the network goes away
	l, err = p.admin.WaitLease(t.Context(), l.ID, patience)
	ok(t, err)
	ok(t, p.admin.ReleaseLease(t.Context(), l.ID, l.Epoch))
	b.until("gpupool.store.link === 'live' && gpupool.store.fleet.gpus[0].slices.length === 0")
	b.clean()
}

// TestTenant signs in as a tenant, who sees that others hold something, and not who.
// TestRoles: one signs in with a token of each role, reads what it may read, and is offered
// what it may do, and no more.
func TestRoles(t *testing.T) {
	chromium(t)
	p := serve(t, "1x2xH100-80GB", "")
	alice := p.tenant("alice", apitype.TenantSpec{})
	x := p.submit(apitype.TaskSpec{Name: "of-alice", Tenant: "alice", GPUs: "1"})
	p.reach(x.ID, "running")
	named := func(role, tenant string, readOnly bool) string {
		n, err := p.admin.MakeToken(t.Context(), apitype.TokenSpec{Role: role, Tenant: tenant, ReadOnly: readOnly})
		ok(t, err)
		return n.Token
	}
	for _, c := range []struct {
		token, says string
		acts, runs  bool
	}{
		{p.token, "admin", true, true}, {named("operator", "", false), "operator", true, true}, {named("operator", "", true), "operator, reads only", false, false},
		{alice, "tenant alice", true, false}, {named("tenant", "alice", true), "tenant alice, reads only", false, false},
		{named("viewer", "", false), "viewer", false, false}, {named("viewer", "alice", false), "viewer of tenant alice", false, false},
	} {
		t.Run(c.says, func(t *testing.T) {
			b := open(t, p, desk, c.token, fmt.Sprintf("/tasks/%d", x.ID))
			b.sees("of-alice")
			b.sees("Where it is")
			if got := js[string](b, "document.querySelector('.who').textContent"); got != c.says {
				t.Errorf("it is called %q, want %q", got, c.says)
			}
			if got := js[bool](b, "Boolean(document.querySelector('[data-do=cancel]'))"); got != c.acts {
				t.Errorf("it is offered to cancel: %v, want %v", got, c.acts)
			}
			b.visit("/submit")
			if c.acts {
				b.sees("Longest run")
			} else {
				b.sees("You may only read")
			}
			b.visit("/pools")
			b.sees("8 to 16 are recommended")
			if got := js[bool](b, "Boolean(document.querySelector('[data-do=mode]'))"); got != c.runs {
				t.Errorf("it is offered to set the mode of a pool: %v, want %v", got, c.runs)
			}
			b.clean()
		})
	}
}

func TestTenant(t *testing.T) {
	chromium(t)
	p := serve(t, "1x2xH100-80GB", "")
	alice, bob := p.tenant("alice", apitype.TenantSpec{}), p.tenant("bob", apitype.TenantSpec{LimitGPUs: 1})
	_, err := p.client(alice).CreateLease(t.Context(), apitype.LeaseSpec{Name: "secret", GPUs: "1"}, "")
	ok(t, err)
	b := open(t, p, desk, bob, "/?as=table")
	b.sees("another tenant")
	for _, path := range []string{"/?as=table", "/queue", "/tasks", "/pools", "/tenants", "/events", "/savings", "/submit", "/tasks/1"} {
		b.visit(path)
		b.exec("await new Promise(r => setTimeout(r, 200))")
		if text := js[string](b, "document.body.innerText"); strings.Contains(text, "alice") || strings.Contains(text, "secret") {
			t.Errorf("bob reads of alice at %s:\n%s", path, text)
		}
		if js[bool](b, "Boolean(document.querySelector('[data-do=mode]'))") {
			t.Error("bob is offered to set the mode of a pool")
		}
	}
	b.sees("is not known") // task 1, which is hers
}
