// Where the page is: the path is the view, the query its filters, so that a link or a
// reload leads back to the same sight.

export const views = [
  { path: '/', name: 'GPUs', key: 'm', filters: ['q', 'tenant', 'pool', 'state'], states: ['free', 'held', 'idle', 'unusable'] },
  { path: '/queue', name: 'Queue', key: 'q', filters: ['q', 'tenant', 'pool'] },
  { path: '/tasks', name: 'Tasks', key: 'a', filters: ['q', 'tenant', 'pool', 'state'], states: ['active', 'queued', 'starting', 'running', 'yielding', 'parked', 'succeeded', 'failed', 'cancelled', 'expired'] },
  { path: '/pools', name: 'Pools', key: 'p', filters: ['q'] },
  { path: '/tenants', name: 'Tenants', key: 't', filters: ['q'] },
  { path: '/savings', name: 'Savings', key: 's', filters: [] },
  { path: '/events', name: 'Events', key: 'e', filters: ['q', 'tenant'] },
  { path: '/submit', name: 'Submit', key: 'n', filters: [] },
];

// here is the view, the number of the task where it is one's, and the filters.
export function here() {
  const path = location.pathname;
  const task = path.match(/^\/tasks\/(\d+)$/);
  const view = task ? { path, name: 'Task ' + task[1], filters: [], parent: '/tasks' } : views.find((v) => v.path === path) || views[0];
  return { view, task: task ? Number(task[1]) : 0, filters: Object.fromEntries(new URLSearchParams(location.search)) };
}

// go leads to an address of this page.
export function go(href) {
  history.pushState(null, '', href);
  dispatchEvent(new CustomEvent('gpupool:moved'));
}

// setFilters changes the query in place; empty ones are left out.
export function setFilters(changes) {
  const q = new URLSearchParams(location.search);
  for (const [k, v] of Object.entries(changes)) {
    if (v) q.set(k, v);
    else q.delete(k);
  }
  const text = q.toString();
  history.replaceState(null, '', location.pathname + (text ? '?' + text : ''));
  dispatchEvent(new CustomEvent('gpupool:filtered'));
}

// linkTo keeps tenant and pool on the way to another view, and drops the rest.
export function linkTo(view, filters) {
  const q = new URLSearchParams();
  for (const k of ['tenant', 'pool']) if (filters[k] && view.filters.includes(k)) q.set(k, filters[k]);
  const text = q.toString();
  return view.path + (text ? '?' + text : '');
}
