// Runs before the first paint, so that nobody who chose dark is flashed at. It is a
// plain script for that reason; modules run later.
(function () {
  'use strict';
  var chosen = null;
  try { chosen = localStorage.getItem('gpupool.theme'); } catch (e) { /* storage is off: as the system has it */ }
  if (chosen === 'dark' || chosen === 'light') document.documentElement.dataset.theme = chosen;
})();
