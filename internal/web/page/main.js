// The frame around the views: who is signed in, where one is, and what stays in sight.
import { add, el, fill, link } from './dom.js';
import { current, forget, remember, remembered } from './session.js';
import { go, here, linkTo, views } from './place.js';
import { Store } from './store.js';
import { filterBar } from './filters.js';
import { keys, showHelp } from './keys.js';
import { signIn } from './signin.js';
import { strip } from './strip.js';
import { map } from './map.js';
import { queue } from './queue.js';
import { tasks } from './tasks.js';
import { task } from './task.js';
import { pools } from './pools.js';
import { tenants } from './tenants.js';
import { savings } from './savings.js';
import { events } from './events.js';
import { submit } from './submit.js';
import { words } from './roles.js';

const makers = { '/': map, '/queue': queue, '/tasks': tasks, '/pools': pools, '/tenants': tenants, '/savings': savings, '/events': events, '/submit': submit };
const app = document.getElementById('app');

class Frame {
  constructor(store) {
    this.store = store;
    this.nav = el('nav', { 'aria-label': 'Views' });
    this.live = el('span', { class: 'live', role: 'status' });
    this.strip = el('section', { class: 'strip', 'aria-label': 'At a glance' });
    this.filters = el('div', { class: 'filters', role: 'search', 'aria-label': 'Filters' });
    this.main = el('main', { id: 'main', tabindex: '-1' });
    this.said = el('div', { class: 'unseen', role: 'status', id: 'said' });
    fill(app, this.header(), this.strip, this.filters, this.main, this.said);
    store.on((topics) => this.update(topics));
    this.off = [
      listen(window, 'popstate', () => this.show()),
      listen(window, 'gpupool:moved', () => this.show(true)),
      listen(window, 'gpupool:filtered', () => this.filtered()),
      listen(document, 'click', follow),
      keys(store),
    ];
    this.show();
    this.update(new Set(['link', 'fleet', 'pools']));
  }

  header() {
    const self = this.store.self;
    const who = words(self);
    return el('header', null,
      link('/', { class: 'brand' }, el('img', { src: '/page/icon.svg', alt: '', width: 20, height: 20 }), 'gpupool'),
      this.nav,
      el('div', { class: 'side' }, this.live,
        el('span', { class: 'who', title: `gpupool ${self.version}${self.hardware ? ', ' + self.hardware : ''}` }, who),
        themeButton(),
        el('button', { class: 'quiet', onclick: showHelp, 'aria-label': 'Keys and help', title: 'Keys and help (?)' }, '?'),
        el('button', { class: 'quiet', onclick: () => { forget(); location.assign('/'); } }, 'Sign out')));
  }

  // show makes the view of the place one is at.
  show(moved) {
    const at = here();
    this.view?.close?.();
    this.at = at;
    document.title = `${at.view.name} · gpupool`;
    fill(this.nav, views.map((v) => link(linkTo(v, at.filters), { 'data-key': 'nav' + v.path, 'aria-current': v.path === (at.view.parent || at.view.path) ? 'page' : null, title: `g ${v.key}` }, v.name)));
    filterBar(this.filters, this.store, at);
    this.main.replaceChildren(el('h1', { class: at.view.path === '/' || !at.task ? 'unseen' : '' }, at.view.name));
    const box = el('div', { class: 'view' });
    this.main.append(box);
    this.view = (at.task ? task : makers[at.view.path])(box, this.store, at);
    this.view.update(new Set(['fleet', 'pools', 'tenants', 'tasks', 'events', 'samples']));
    if (moved) {
      scrollTo(0, 0);
      this.main.focus({ preventScroll: true });
    }
  }

  filtered() {
    this.at = here();
    filterBar(this.filters, this.store, this.at);
    fill(this.nav, views.map((v) => link(linkTo(v, this.at.filters), { 'data-key': 'nav' + v.path, 'aria-current': v.path === this.at.view.path ? 'page' : null, title: `g ${v.key}` }, v.name)));
    this.view.filter(this.at.filters);
  }

  update(topics) {
    if (topics.has('link')) {
      const live = this.store.link === 'live';
      fill(this.live, el('i', { class: live ? 'dot on' : 'dot', 'aria-hidden': 'true' }), live ? 'live' : this.store.link === 'away' ? 'no connection' : 'connecting');
    }
    if (topics.has('fleet') || topics.has('pools')) strip(this.strip, this.store, topics.has('pools')); // pools change rarely
    if (topics.has('pools') || topics.has('tenants')) filterBar(this.filters, this.store, this.at);
    this.view.update(topics);
  }

  close() {
    this.view?.close?.();
    this.off.forEach((f) => f());
  }
}

function listen(target, name, f) {
  target.addEventListener(name, f);
  return () => target.removeEventListener(name, f);
}

// follow turns clicks on links of the page into moves without a reload.
function follow(e) {
  const a = e.target.closest?.('a[data-view]');
  if (!a || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.defaultPrevented) return;
  e.preventDefault();
  go(a.getAttribute('href'));
}

const themes = ['auto', 'dark', 'light'];

function themeButton() {
  const says = (t) => ({ auto: '◐ auto', dark: '● dark', light: '○ light' })[t];
  const label = (t) => `Theme: ${t}; next theme`;
  const b = el('button', { class: 'quiet theme', title: 'Theme (d)', 'aria-label': label(remembered('theme', 'auto')), onclick: () => {
    const next = themes[(themes.indexOf(remembered('theme', 'auto')) + 1) % themes.length];
    remember('theme', next);
    if (next === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    b.textContent = says(next);
    b.setAttribute('aria-label', label(next));
    dispatchEvent(new CustomEvent('gpupool:theme'));
  } }, says(remembered('theme', 'auto')));
  return b;
}

let frame, store;

async function begin() {
  frame?.close();
  store?.close();
  frame = store = null;
  if (!current()) return signIn(app, begin);
  store = new Store();
  try {
    await store.open();
  } catch (e) {
    store.close();
    if (e.status === 401) { forget(); return signIn(app, begin, e.message); }
    return fill(app, el('div', { class: 'gate' }, el('h1', null, 'gpupool'), el('p', { role: 'alert' }, e.message), el('button', { class: 'main', onclick: begin }, 'Try again')));
  }
  frame = new Frame(store);
  window.gpupool = { store, frame }; // for measuring, from the console and in tests
}

addEventListener('gpupool:signedout', (e) => {
  if (!frame) return;
  forget();
  frame.close();
  store.close();
  frame = store = null;
  signIn(app, begin, e.detail);
});

add(app, el('p', { class: 'gate', role: 'status' }, 'Loading…'));
begin();
