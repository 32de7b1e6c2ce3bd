"""The look of a report: light and dark, wide and narrow, without anything from outside."""

CSS = """
:root {
  color-scheme: light dark;
  --page: #ffffff; --card: #f6f7f9; --ink: #1d2430; --soft: #5b6675; --rule: #dde1e7;
  /* Told apart by colour-blind readers, too: they differ in lightness, not in hue alone. */
  --first: #0072b2; --second: #d55e00; --third: #117a5b; --bad: #a0153e;
  --s0: #0072b2; --s1: #d55e00; --s2: #117a5b; --s3: #aa4499; --s4: #85851f;
  --s5: #4433a0; --s6: #2a9aa8; --s7: #882255; --s8: #6b7280; --s9: #b07d00;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171c; --card: #1d2128; --ink: #e4e8ee; --soft: #9aa5b4; --rule: #333a45;
    --first: #56b4e9; --second: #f08a3c; --third: #35c79c; --bad: #ff8a9a;
    --s0: #56b4e9; --s1: #f08a3c; --s2: #35c79c; --s3: #dd88cc; --s4: #cfcf5a;
    --s5: #a79ff2; --s6: #7fdbe6; --s7: #e06699; --s8: #aab2bf; --s9: #e6b84a;
  }
}
* { box-sizing: border-box; }
a { color: var(--first); }
body {
  margin: 0 auto; max-width: 72rem; padding: 1.5rem 1rem 3rem; background: var(--page);
  color: var(--ink); font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif;
}
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .75rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .25rem; }
figure h3 { margin-top: 0; }
.sub, figcaption, .note { color: var(--soft); font-size: .875rem; }
.sub { margin: .25rem 0 1.25rem; overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .75rem;
  margin: 0; }
.tiles div { background: var(--card); border-radius: .5rem; padding: .7rem .9rem; }
.tiles dt { color: var(--soft); font-size: .8rem; }
.tiles dd { margin: 0; font-size: 1.45rem; font-weight: 600; line-height: 1.3; }
.tiles small { display: block; color: var(--soft); font-size: .8rem; font-weight: 400; }
.story { margin: 1.25rem 0 0; padding: 0; list-style: none; max-width: 58rem; }
.story li { margin: .35rem 0; overflow-wrap: anywhere; }
.warn { border-left: 4px solid var(--bad); padding-left: .75rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 27rem), 1fr));
  gap: 1.25rem; margin-top: 1.25rem; }
.first .story { margin-top: 0; }
summary { font-weight: 500; }
figure { margin: 0; background: var(--card); border-radius: .5rem; padding: 1rem; min-width: 0; }
figure svg { display: block; width: 100%; height: auto; margin: .25rem 0 .5rem;
  stroke-linejoin: round; }
figure svg text { font-family: system-ui, -apple-system, "Segoe UI", sans-serif !important; }
figure svg image { image-rendering: pixelated; }
.key { display: inline-block; width: .7em; height: .7em; border-radius: 2px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; }
/* Many columns are swept sideways on a phone rather than squeezed. */
table:has(th:nth-child(5)) { min-width: 40rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem 1.5rem .3rem 0;
  border-bottom: 1px solid var(--rule); overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 500; }
thead th { white-space: nowrap; }
th:first-child, td:first-child { min-width: 6rem; }
.count { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
code, pre { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: .85rem; }
pre + pre { margin-top: .5rem; }
pre { background: var(--card); border-radius: .5rem; padding: .75rem 1rem; margin: 0;
  white-space: pre-wrap; overflow-wrap: anywhere; }
details { margin: 1rem 0 0; }
summary { cursor: pointer; }
@media (max-width: 30rem) { figure { padding: .75rem .5rem .75rem .6rem; } }
.answer { font-size: 1.15rem; font-weight: 600; margin: 0 0 .75rem; }
.plot { position: relative; touch-action: pan-y; }
.ruler { position: absolute; width: 1px; background: var(--soft); pointer-events: none; }
.tip {
  position: absolute; top: 2rem; margin: 0; padding: .4rem .6rem; background: var(--page);
  border: 1px solid var(--rule); border-radius: .4rem; font-size: .75rem; line-height: 1.35;
  white-space: pre; pointer-events: none; z-index: 1;
}
.sortable button {
  all: unset; cursor: pointer; font: inherit; color: inherit; white-space: nowrap;
}
.sortable button:focus-visible { outline: 2px solid var(--first); }
.sortable th button::after { content: " \\2195"; opacity: .4; }
.sortable th[aria-sort=ascending] button::after { content: " \\2191"; opacity: 1; }
.sortable th[aria-sort=descending] button::after { content: " \\2193"; opacity: 1; }
.sortable td { white-space: nowrap; }
/* A table of very many columns breaks its lines rather than leave a wide screen. */
.sortable:has(th:nth-child(10)) { min-width: 58rem; }
.sortable:has(th:nth-child(10)) :is(th, th button, td) { white-space: normal;
  overflow-wrap: normal; padding-right: .5rem; }
.copy { font: inherit; font-size: .8rem; margin: .5rem 0 0; padding: .2rem .6rem; cursor: pointer;
  color: var(--soft); background: none; border: 1px solid var(--rule); border-radius: .4rem; }
.copy:focus-visible { outline: 2px solid var(--first); }
.data textarea { display: block; width: 100%; margin-top: .5rem; }
.words { display: block; white-space: normal; min-width: 12rem; max-width: 36rem; }
/* Swept sideways, a row keeps its name; a shade tells that there is more. */
.sortable th:first-child, .sortable td:first-child { position: sticky; left: 0;
  background: var(--page); padding-right: .75rem; }
.scroll:has(.sortable) { background: linear-gradient(to left, var(--page) 60%, transparent) right /
  3rem 100% no-repeat local, linear-gradient(to left, var(--rule), transparent) right / 1rem 100%
  no-repeat scroll; }
.sortable tr.best td:first-child { font-weight: 600; }
"""
