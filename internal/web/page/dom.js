// Making elements. Text only ever becomes text nodes: the page's policy (trusted types)
// forbids turning strings into markup, and names of tasks are written by others.

// el makes an element: el('button', {class: 'x', onclick: f, disabled: true}, 'text', node, …).
// Properties that begin with "on" are listeners; null, undefined and false are left out.
export function el(tag, props, ...kids) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(props || {})) {
    if (v == null || v === false) continue;
    if (k.startsWith('on')) e.addEventListener(k.slice(2), v);
    else if (k === 'value') { e.value = v; if (tag === 'button' || tag === 'option') e.setAttribute('value', v); }
    else e.setAttribute(k, v === true ? '' : v);
  }
  return add(e, ...kids);
}

// add appends nodes, texts and lists of them.
export function add(parent, ...kids) {
  for (const k of kids.flat(Infinity)) {
    if (k == null || k === false) continue;
    parent.append(k instanceof Node ? k : String(k));
  }
  return parent;
}

// fill replaces what an element holds. The focus stays where it was if what had it comes
// again under the same data-key: live lists are rebuilt while someone tabs through them.
export function fill(parent, ...kids) {
  const had = parent.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  parent.replaceChildren();
  add(parent, ...kids);
  if (had) {
    const again = [...parent.querySelectorAll('[data-key]')].find((n) => n.dataset.key === had);
    if (again) again.focus({ preventScroll: true });
  }
  return parent;
}

// table makes a table that becomes a list of cards on a narrow screen (style.css).
// A column is {name, cell(row), class?, wide?}; a cell is anything that add takes.
export function table(caption, columns, rows, empty) {
  const head = el('tr', null, columns.map((c) => el('th', { scope: 'col', class: c.class }, c.name)));
  const body = rows.map((r) => el('tr', null, columns.map((c, i) =>
    el(i === 0 ? 'th' : 'td', { scope: i === 0 ? 'row' : null, class: c.class, 'data-label': c.name }, el('div', null, c.cell(r))))));
  if (rows.length === 0) body.push(el('tr', { class: 'empty' }, el('td', { colspan: columns.length }, empty)));
  return el('table', { class: 'list' }, el('caption', { class: 'unseen' }, caption), el('thead', null, head), el('tbody', null, body));
}

// link leads to another view without a reload (main.js listens for it).
export function link(href, props, ...kids) {
  return el('a', { href, 'data-view': '', 'data-key': href, ...props }, ...kids);
}

// bar shows shares of a whole as segments: [{share: 0 to 1, class, name}]. What it shows
// is also said in words next to it, so it is hidden from screen readers.
export function bar(segments) {
  return el('div', { class: 'bar', 'aria-hidden': 'true' }, segments.filter((s) => s.share > 0).map((s) => {
    const seg = el('span', { class: 'seg ' + s.class, title: s.name });
    seg.style.width = (100 * Math.min(s.share, 1)).toFixed(2) + '%';
    return seg;
  }));
}
