// Who is signed in. The token lives in sessionStorage: it is of this tab alone, goes when
// the tab closes, and is never sent by the browser itself, so that no other site can make
// this one act for its user (docs/page.md has the reasons).

const key = 'gpupool.token';

export function token() {
  try { return sessionStorage.getItem(key) || ''; } catch { return ''; }
}

export function keep(t) {
  try { sessionStorage.setItem(key, t); } catch { /* storage is off: signed in until a reload */ }
  memory = t;
}

export function forget() {
  memory = '';
  try { sessionStorage.clear(); } catch { /* nothing was kept */ }
}

let memory = '';
export function current() { return memory || token(); }

// remembered reads a choice of this browser, such as the theme: no secret goes there.
export function remembered(name, fallback) {
  try { return localStorage.getItem('gpupool.' + name) ?? fallback; } catch { return fallback; }
}

export function remember(name, value) {
  try { localStorage.setItem('gpupool.' + name, value); } catch { /* forgotten at the next reload */ }
}
