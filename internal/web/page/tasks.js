// All tasks, newest first.
import { el, fill, link, table } from './dom.js';
import { call } from './net.js';
import { matcher } from './filters.js';
import { clock, count, span } from './words.js';

const perPage = 200;

export function tasks(root, store, at) {
  let filters = at.filters, items = [], next = '', pages = 1, busy = false, again = false, closed = false, fault = '';

  function query(after) {
    const q = new URLSearchParams({ order: 'desc', limit: String(perPage) });
    for (const k of ['tenant', 'pool', 'state']) if (filters[k]) q.set(k, filters[k]);
    if (after) q.set('after', after);
    return '/v1/tasks?' + q;
  }

  async function load() {
    if (busy) { again = true; return; }
    busy = true;
    again = false;
    try {
      const out = [];
      next = '';
      for (let i = 0; i < pages; i++) {
        const page = await call(query(next));
        out.push(...page.items);
        next = page.next || '';
        if (!next) break;
      }
      items = out;
      fault = '';
    } catch (e) { fault = e.message; }
    if (closed) return;
    render();
    await new Promise((done) => setTimeout(done, 1500));
    busy = false;
    if (again && !closed) load();
  }

  function render() {
    const match = matcher(filters.q);
    const rows = items.filter((t) => !match || match(`#${t.id} ${t.name || ''} ${t.tenant} ${t.pool} ${t.request} ${t.state} ${t.class || ''}`));
    fill(root, fault ? el('p', { role: 'alert', class: 'fault' }, fault) : null,
      el('p', { class: 'tools dim', role: 'status' }, count(rows.length, 'task') + (next ? ', newest first; there are more' : ', newest first')),
      table('Tasks', columns, rows, 'No task fits the filters.'),
      next ? el('button', { class: 'more', 'data-key': 'more', onclick: () => { pages++; busy = false; load(); } }, 'Show more') : null);
  }

  return { update(topics) { if (topics.has('tasks')) load(); }, filter(f) { filters = f; pages = 1; render(); busy = false; load(); }, close() { closed = true; } };
}

const marks = { queued: '◷', starting: '◔', running: '▶', yielding: '◁', parked: '⏸', succeeded: '✓', failed: '✕', cancelled: '⊘', expired: '⌛' };

// badge is a state with a mark of its own, so that colour is not all that tells them apart.
export function badge(state) { return el('span', { class: 'badge ' + state }, el('span', { 'aria-hidden': 'true' }, (marks[state] || '·') + ' '), state); }

function ran(t) {
  if (!t.started) return '–';
  return span(((t.ended ? Date.parse(t.ended) : Date.now()) - Date.parse(t.started)) / 1000);
}

const columns = [
  { name: 'Task', cell: (t) => link('/tasks/' + t.id, null, `#${t.id} ${t.name || ''}`) },
  { name: 'State', cell: (t) => badge(t.state) },
  { name: 'Tenant', cell: (t) => t.tenant },
  { name: 'Pool', cell: (t) => t.pool },
  { name: 'Asks for', cell: (t) => t.request },
  { name: 'Submitted', cell: (t) => clock(t.submitted) },
  { name: 'Ran for', class: 'n', cell: ran },
  { name: 'What is said of it', class: 'wide', cell: (t) => t.reason.message || t.reason.code || '–' },
];
