package web_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestViews looks at every view on a desk and on a phone, in both themes.
func TestViews(t *testing.T) {
	chromium(t)
	p := serve(t, "2x8xH100-80GB,1x4xH100-80GB", settings)
	running, waiting, failed := p.town()
	views := []struct{ name, path, sees string }{
		{"gpus", "/", "20 GPUs on 3 hosts"},
		{"gpus-table", "/?as=table", "vision"},
		{"queue", "/queue", "pretrain"},
		{"tasks", "/tasks", "crash"},
		{"task-running", fmt.Sprintf("/tasks/%d", running), "loss 0.42"},
		{"task-waiting", fmt.Sprintf("/tasks/%d", waiting), "Why it waits"},
		{"task-failed", fmt.Sprintf("/tasks/%d", failed), "out of luck"},
		{"pools", "/pools", "serving"},
		{"tenants", "/tenants", "of its limit"},
		{"savings", "/savings", "static: GPU hours held"},
		{"events", "/events", "since this page was opened"},
		{"submit", "/submit", "Command"},
	}
	for _, s := range []screen{desk, phone} {
		b := open(t, p, s, p.token, "/")
		b.sees("20 GPUs on 3 hosts")
		for _, v := range views {
			b.visit(v.path)
			b.sees(v.sees)
			if v.name == "events" {
				_, err := p.admin.Release(t.Context(), held(t, p))
				ok(t, err)
				b.sees("released by an admin")
				_, err = p.admin.Hold(t.Context(), held(t, p))
				ok(t, err)
			}
			for _, theme := range []string{"light", "dark"} {
				b.theme(theme)
				where := fmt.Sprintf("%s-%d-%s", v.name, s.width, theme)
				b.exec("await new Promise(r => setTimeout(r, 150))") // so that pictures show what is drawn late
				b.picture(where)
				b.fits(where)
				b.accessible(where)
			}
			b.theme("light")
		}
		b.clean()
	}
}

// held is the task that waits for someone to release it.
func held(t *testing.T, p *pool) uint64 {
	for x, err := range p.admin.Tasks(t.Context(), taskQuery("speech")) {
		ok(t, err)
		if x.Name == "held-back" {
			return x.ID
		}
	}
	t.Fatal("there is no task that is held")
	return 0
}

// TestSignIn signs in with a bad token, with a good one, and out.
func TestSignIn(t *testing.T) {
	chromium(t)
	p := serve(t, "1x2xH100-80GB", "")
	b := open(t, p, phone, "", "/queue")
	b.sees("Token")
	b.accessible("the door")
	b.picture("door-390-light")
	b.do(chromedp.SendKeys(chromedp.CSS("#token"), "gpa_"+strings.Repeat("0", 64)+"\r"))
	b.sees("the token is not known")
	b.forgive("401")
	b.exec("document.querySelector('#token').value = ''")
	b.do(chromedp.SendKeys(chromedp.CSS("#token"), p.token+"\r"))
	b.sees("Nobody waits")
	b.at("/queue")
	b.do(chromedp.Reload())
	b.sees("Nobody waits")
	kept := js[string](b, "JSON.stringify(localStorage) + document.cookie")
	if strings.Contains(kept, "gpa_") {
		t.Errorf("the token is kept beyond the tab: %s", kept)
	}
	b.do(chromedp.Click(chromedp.Search(`//button[text()="Sign out"]`)))
	b.sees("Token")
	kept = js[string](b, "sessionStorage.getItem('gpupool.token') || ''")
	if kept != "" {
		t.Error("the token is still there after signing out")
	}
	b.clean()
}
