// Numbers and times as people read them.

export function count(n, one, many) { return `${num(n)} ${n === 1 ? one : many || one + 's'}`; }

export function num(n) {
  if (n == null) return '–';
  return (Math.round(n * 100) / 100).toLocaleString('en', { maximumFractionDigits: 2 });
}

export function percent(share) { return share == null || share < 0 ? '–' : Math.round(100 * share) + ' %'; }

// span writes a number of seconds: 42 s, 3 min 5 s, 2 h 10 min, 3 d 4 h.
export function span(s) {
  s = Math.max(0, Math.round(s));
  const two = (a, ua, b, ub) => (b ? `${a} ${ua} ${b} ${ub}` : `${a} ${ua}`);
  if (s < 60) return `${s} s`;
  if (s < 3600) return two(Math.floor(s / 60), 'min', s % 60, 's');
  if (s < 86400) return two(Math.floor(s / 3600), 'h', Math.floor((s % 3600) / 60), 'min');
  return two(Math.floor(s / 86400), 'd', Math.floor((s % 86400) / 3600), 'h');
}

const pad = (n) => String(n).padStart(2, '0');

// clock writes a time of day, with the date when that is not today's.
export function clock(t, withSeconds) {
  const d = t instanceof Date ? t : new Date(t);
  const now = new Date();
  const day = d.toDateString() === now.toDateString() ? '' : d.toLocaleDateString('en-GB', { weekday: 'short', day: 'numeric', month: 'short' }) + ' ';
  return day + pad(d.getHours()) + ':' + pad(d.getMinutes()) + (withSeconds ? ':' + pad(d.getSeconds()) : '');
}

export function ago(t, now) { return span(((now || Date.now()) - new Date(t)) / 1000); }

export function mib(n) { return n >= 1024 ? num(Math.round(n / 102.4) / 10) + ' GiB' : n + ' MiB'; }

// useWord names how busy something is; the marks are those of docs/elastic.md.
export function useWord(percentBusy) {
  if (percentBusy < 0) return 'use not known';
  if (percentBusy < 5) return 'idle';
  if (percentBusy < 60) return 'light';
  if (percentBusy < 90) return 'busy';
  return 'full';
}
