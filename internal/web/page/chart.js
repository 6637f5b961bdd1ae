// A line chart of a few series over time, in SVG. Lines differ in dash as well as in
// colour, and each carries its name.
const ns = 'http://www.w3.org/2000/svg';
const H = 260, left = 48, right = 12, top = 12, bottom = 28;

function svg(tag, props, ...kids) {
  const e = document.createElementNS(ns, tag);
  for (const [k, v] of Object.entries(props)) e.setAttribute(k, v);
  e.append(...kids);
  return e;
}

export function chart(title, series) {
  const root = svg('svg', { height: H, class: 'chart', role: 'img' });
  const key = document.createElement('ul');
  key.className = 'legend';
  for (const s of series) {
    const li = document.createElement('li');
    li.append(svg('svg', { viewBox: '0 0 30 10', class: 'swatchline', 'aria-hidden': 'true' }, svg('line', { x1: 0, x2: 30, y1: 5, y2: 5, class: 'line ' + s.style })), ' ' + s.name);
    key.append(li);
  }
  const element = document.createElement('figure');
  element.append(key, root);

  function show(samples) {
    const W = element.clientWidth || 800; // text is to stay as large as it is, whatever the width
    root.setAttribute('viewBox', `0 0 ${W} ${H}`);
    const t0 = samples[0].at, t1 = Math.max(samples.at(-1).at, t0 + 60000);
    const most = nice(Math.max(1, ...samples.map((x) => Math.max(...series.map((s) => x[s.key] || 0)))));
    const x = (t) => left + (W - left - right) * (t - t0) / (t1 - t0);
    const y = (v) => H - bottom - (H - top - bottom) * v / most;
    const last = samples.at(-1);
    root.replaceChildren(svg('title', {}, `${title}: now ${series.map((s) => `${s.name} ${last[s.key] ?? 0}`).join(', ')}`));
    for (let i = 0; i <= 4; i++) {
      const v = most * i / 4;
      root.append(svg('line', { x1: left, x2: W - right, y1: y(v), y2: y(v), class: 'grid' }), svg('text', { x: left - 6, y: y(v) + 4, 'text-anchor': 'end' }, String(Math.round(v * 100) / 100)));
    }
    const marks = W < 500 ? 2 : 4;
    for (let i = 0; i <= marks; i++) {
      const t = t0 + (t1 - t0) * i / marks;
      root.append(svg('text', { x: x(t), y: H - 8, 'text-anchor': i === 0 ? 'start' : i === marks ? 'end' : 'middle' }, new Date(t).toTimeString().slice(0, t1 - t0 < 600000 ? 8 : 5)));
    }
    for (const s of series) {
      const d = samples.map((p, i) => `${i ? 'L' : 'M'}${x(p.at).toFixed(1)} ${y(p[s.key] || 0).toFixed(1)}`).join('');
      root.append(svg('path', { d: samples.length > 1 ? d : d + `h4`, class: 'line ' + s.style }));
    }
  }
  return { element, show };
}

// nice is the next number that an axis reads well with.
function nice(v) {
  const p = 10 ** Math.floor(Math.log10(v));
  return [1, 2, 4, 5, 8, 10].map((m) => m * p).find((n) => n >= v);
}
