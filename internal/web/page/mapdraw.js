// Drawing one GPU. What a slice does is shown three times over, so that none needs colour:
// how high its fill stands is its real use; idle has dots, not known has a hatch, another
// tenant's a cross hatch; and the tooltip, the panel and the table say it in words.

// palette reads the colours from the style sheet, so that themes live there alone.
export function palette(element) {
  const css = getComputedStyle(element);
  const c = {};
  for (const n of ['bg', 'text', 'dim', 'line', 'free', 'held', 'light', 'busy', 'full', 'idle', 'bad', 'focus', 'warn']) c[n] = css.getPropertyValue('--map-' + n).trim();
  c.patterns = { dots: pattern(dots, c.idle), hatch: pattern(hatch, c.dim), cross: pattern(cross, c.dim) };
  return c;
}

function pattern(paint, colour) {
  const tile = document.createElement('canvas');
  tile.width = tile.height = 6;
  const ctx = tile.getContext('2d');
  ctx.strokeStyle = ctx.fillStyle = colour;
  paint(ctx);
  return ctx.createPattern(tile, 'repeat');
}

function dots(ctx) { ctx.fillRect(1, 1, 2, 2); ctx.fillRect(4, 4, 2, 2); }

function hatch(ctx) {
  ctx.beginPath();
  for (const d of [-6, 0, 6]) { ctx.moveTo(d, 6); ctx.lineTo(d + 6, 0); }
  ctx.stroke();
}

function cross(ctx) {
  hatch(ctx);
  ctx.beginPath();
  for (const d of [-6, 0, 6]) { ctx.moveTo(d, 0); ctx.lineTo(d + 6, 6); }
  ctx.stroke();
}

// spans says from where to where a slice goes across a tile, as shares of its width. A MIG
// slice stands at its memory units; shares fill the tile one after the other.
export function spans(gpu) {
  let filled = 0;
  return gpu.slices.map((s) => {
    if (s.mode === 'mig' && gpu.model.units) return [s.start / gpu.model.units, (s.start + s.units) / gpu.model.units];
    if (s.mode === 'whole') return [0, 1];
    const from = filled;
    filled = Math.min(1, filled + s.milli / 1000);
    return [from, filled];
  });
}

// draw draws a GPU at a place. look: {dim, usable, label}.
export function draw(ctx, c, gpu, x, y, w, h, look) {
  ctx.globalAlpha = look.dim ? 0.25 : 1;
  ctx.fillStyle = c.free;
  ctx.fillRect(x, y, w, h);
  const at = spans(gpu);
  gpu.slices.forEach((s, i) => {
    const x0 = Math.round(x + at[i][0] * w), x1 = Math.round(x + at[i][1] * w) - (at[i][1] < 1 ? 1 : 0);
    slice(ctx, c, s, x0, y, Math.max(1, x1 - x0), h, look.label);
  });
  ctx.lineWidth = 1;
  ctx.strokeStyle = gpu.slices.length ? c.dim : c.line;
  ctx.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
  if (!look.usable) unusable(ctx, c, gpu, x, y, w, h);
  ctx.globalAlpha = 1;
}

function slice(ctx, c, s, x, y, w, h, label) {
  ctx.fillStyle = c.held;
  ctx.fillRect(x, y, w, h);
  if (!s.task || s.use < 0) {
    ctx.fillStyle = s.task ? c.patterns.hatch : c.patterns.cross;
    ctx.fillRect(x, y, w, h);
  } else if (s.use < 5) {
    ctx.fillStyle = c.patterns.dots;
    ctx.fillRect(x, y, w, h);
    ctx.fillStyle = c.idle;
    ctx.fillRect(x, y + h - 2, w, 2);
  } else {
    const fill = Math.max(3, Math.round(h * Math.min(s.use, 100) / 100));
    ctx.fillStyle = s.use < 60 ? c.light : s.use < 90 ? c.busy : c.full;
    ctx.fillRect(x, y + h - fill, w, fill);
  }
  if (label && s.task && w > 22) caption(ctx, c, s, x, y, w, h);
}

// caption writes who holds a slice onto it, on a plate that keeps it readable.
function caption(ctx, c, s, x, y, w, h) {
  const lines = w > 60 ? [`${s.tenant}`, `#${s.task}${s.use >= 0 ? ` · ${s.use} %` : ''}`] : [`#${s.task}`];
  ctx.save();
  ctx.beginPath();
  ctx.rect(x, y, w, h);
  ctx.clip();
  ctx.font = '11px system-ui, sans-serif';
  lines.forEach((line, i) => {
    const width = ctx.measureText(line).width;
    ctx.fillStyle = c.bg;
    ctx.fillRect(x + 2, y + 3 + i * 15, Math.min(width + 5, w - 4), 14);
    ctx.fillStyle = c.text;
    ctx.fillText(line, x + 4, y + 14 + i * 15, w - 8);
  });
  ctx.restore();
}

function unusable(ctx, c, gpu, x, y, w, h) {
  const lost = gpu.health === 'broken' || gpu.health === 'ok'; // ok: its host is away
  ctx.strokeStyle = lost ? c.bad : c.warn;
  ctx.lineWidth = 2;
  ctx.setLineDash(gpu.health === 'suspect' ? [4, 3] : []);
  ctx.strokeRect(x + 1, y + 1, w - 2, h - 2);
  ctx.setLineDash([]);
  ctx.beginPath();
  ctx.moveTo(x + 4, y + 4); ctx.lineTo(x + w - 4, y + h - 4);
  if (lost) { ctx.moveTo(x + w - 4, y + 4); ctx.lineTo(x + 4, y + h - 4); }
  ctx.stroke();
  ctx.lineWidth = 1;
}

// legend is each thing that a tile can show, with its word.
export const legend = [
  ['free', []],
  ['idle', [{ use: 0 }]],
  ['under 60 %', [{ use: 35 }]],
  ['60 to 90 %', [{ use: 75 }]],
  ['over 90 %', [{ use: 97 }]],
  ['use not known', [{ use: -1 }]],
  ['another tenant', [{ use: -1, task: 0 }]],
  ['three slices', [{ use: 90, mode: 'mig', start: 0, units: 4 }, { use: 40, mode: 'mig', start: 4, units: 2 }, { use: 0, mode: 'mig', start: 6, units: 1 }]],
  ['unusable', [], 'broken'],
  ['cordoned', [{ use: 35 }], 'cordoned'],
];

// sample is a small picture for the legend.
export function sample(c, [, slices, health]) {
  const canvas = document.createElement('canvas');
  const scale = Math.min(devicePixelRatio || 1, 2);
  canvas.width = 26 * scale;
  canvas.height = 18 * scale;
  canvas.setAttribute('aria-hidden', 'true');
  canvas.className = 'swatch';
  const ctx = canvas.getContext('2d');
  ctx.scale(scale, scale);
  const gpu = { model: { units: 8 }, health: health || 'ok', slices: slices.map((s) => ({ task: 1, mode: 'whole', milli: 1000, ...s })) };
  draw(ctx, c, gpu, 0, 0, 26, 18, { usable: !health });
  return canvas;
}
