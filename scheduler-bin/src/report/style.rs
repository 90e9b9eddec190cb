//! How the HTML report looks, in light and in dark, and the few lines of script that switch between both.

/// The sheet.
pub(crate) const STYLE: &str = r#"
:root{--bg:#f6f7f9;--card:#fff;--ink:#1b2330;--soft:#5b6675;--line:#e3e7ec;--grid:#edf0f3;--accent:#0b6e8f;
--s0:#0b7fab;--s1:#d9730d;--s2:#4a8f3c;--s3:#8e4ec6;--s4:#c2355b;--s5:#6b7280;
--h0:#eef2f5;--h1:#dcebf2;--h2:#c3dfec;--h3:#a6d0e4;--h4:#84bdd9;--h5:#5fa8cc;--h6:#3d92bb;--h7:#257aa4;--h8:#14638a;--h9:#d98a2b;--h10:#c2481f;--good:#2e7d32;--bad:#b3261e}
@media (prefers-color-scheme:dark){:root:not([data-theme=light]){--bg:#10151c;--card:#18202a;--ink:#e6ebf1;--soft:#93a0b0;--line:#2a3441;--grid:#232d39;--accent:#5bc0e6;
--s0:#4db6e2;--s1:#f2a154;--s2:#7cc46b;--s3:#bd93f0;--s4:#f07f9c;--s5:#9aa5b1;
--h0:#1f2934;--h1:#1f3542;--h2:#1f4252;--h3:#1f5064;--h4:#216079;--h5:#25718f;--h6:#2b84a6;--h7:#3a99bd;--h8:#5bb4d4;--h9:#e6a04a;--h10:#ee6c42;--good:#7cc46b;--bad:#f07f7f}}
:root[data-theme=dark]{--bg:#10151c;--card:#18202a;--ink:#e6ebf1;--soft:#93a0b0;--line:#2a3441;--grid:#232d39;--accent:#5bc0e6;
--s0:#4db6e2;--s1:#f2a154;--s2:#7cc46b;--s3:#bd93f0;--s4:#f07f9c;--s5:#9aa5b1;
--h0:#1f2934;--h1:#1f3542;--h2:#1f4252;--h3:#1f5064;--h4:#216079;--h5:#25718f;--h6:#2b84a6;--h7:#3a99bd;--h8:#5bb4d4;--h9:#e6a04a;--h10:#ee6c42;--good:#7cc46b;--bad:#f07f7f}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",sans-serif;font-variant-numeric:tabular-nums}
main{max-width:1180px;margin:0 auto;padding:28px 22px 60px}
header{display:flex;justify-content:space-between;align-items:flex-start;gap:16px;margin-bottom:20px}
h1{font-size:25px;line-height:1.2;margin:0 0 4px;letter-spacing:-.01em}
h2{font-size:15px;margin:0 0 2px}
p{margin:0 0 8px}.soft,.note{color:var(--soft)}.note{font-size:13px;margin:0 0 10px}
button{font:inherit;font-size:13px;color:var(--soft);background:var(--card);border:1px solid var(--line);border-radius:8px;padding:5px 11px;cursor:pointer}
button:focus-visible{outline:2px solid var(--accent)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin-bottom:16px}
.card,section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:14px 16px}
.card b{display:block;font-size:25px;line-height:1.25;letter-spacing:-.02em;font-weight:650}
.card span{color:var(--soft);font-size:13px}.card.bad b{color:var(--bad)}.card.good b{color:var(--good)}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:14px}
.wide{grid-column:1/-1}
svg.chart{display:block;width:100%;height:auto;overflow:visible}
svg .grid{stroke:var(--grid)}svg .axis{stroke:var(--line)}svg .tick{fill:var(--soft);font-size:12px}
svg .line{fill:none;stroke-width:2;stroke-linejoin:round}svg .area{opacity:.13;stroke:none}
svg .line.s0{stroke:var(--s0)}svg .line.s1{stroke:var(--s1)}svg .line.s2{stroke:var(--s2)}svg .line.s3{stroke:var(--s3)}svg .line.s4{stroke:var(--s4)}svg .line{stroke:var(--s5)}
svg .s0:not(.line){fill:var(--s0)}svg .s1:not(.line){fill:var(--s1)}svg .s2:not(.line){fill:var(--s2)}svg .s3:not(.line){fill:var(--s3)}svg .s4:not(.line){fill:var(--s4)}svg .s5:not(.line){fill:var(--s5)}
.h0{fill:var(--h0)}.h1{fill:var(--h1)}.h2{fill:var(--h2)}.h3{fill:var(--h3)}.h4{fill:var(--h4)}.h5{fill:var(--h5)}.h6{fill:var(--h6)}.h7{fill:var(--h7)}.h8{fill:var(--h8)}.h9{fill:var(--h9)}.h10{fill:var(--h10)}
.scale{display:flex;align-items:center;gap:8px;color:var(--soft);font-size:12px;margin-top:8px}.scale svg{width:154px;height:12px;flex:none}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:13px;color:var(--soft);margin-top:6px}
.key{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px;vertical-align:-1px;background:var(--s5)}
.key.s0{background:var(--s0)}.key.s1{background:var(--s1)}.key.s2{background:var(--s2)}.key.s3{background:var(--s3)}.key.s4{background:var(--s4)}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:14px}
th,td{text-align:right;padding:5px 10px;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child{text-align:left}th{color:var(--soft);font-weight:600}
.figures{columns:2 320px;column-gap:36px;font-size:14px}.figures div{display:flex;justify-content:space-between;gap:12px;padding:5px 0;border-bottom:1px solid var(--line);break-inside:avoid}.figures b{font-weight:600}
.left td,.left th{text-align:left;white-space:normal}.left td:first-child{white-space:nowrap;text-align:right}
dl{display:grid;grid-template-columns:minmax(190px,max-content) 1fr;gap:7px 18px;margin:0;font-size:14px}
dt{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:13px;overflow-wrap:anywhere}dd{margin:0;color:var(--soft)}
code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.92em}
@media (max-width:640px){dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:9px}}
@media print{button{display:none}body{background:#fff}}
"#;

/// Light or dark by a button; without a click the system's choice counts.
pub(crate) const SCRIPT: &str = r#"
document.getElementById("theme").addEventListener("click",function(){
var r=document.documentElement,d=r.dataset.theme||(matchMedia("(prefers-color-scheme:dark)").matches?"dark":"light");
r.dataset.theme=d==="dark"?"light":"dark"});
"#;
