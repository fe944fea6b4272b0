// Draws a fleet that is too large for an element for each node: only the rows on the screen, from names and states.
"use strict";
(() => {
  const CELL = 15, GAP = 2, STEP = CELL + GAP, HEAD = 30, SECOND = 1000;
  const grid = document.getElementById("grid"), canvas = grid.querySelector("canvas");
  const pen = canvas.getContext("2d"), says = document.getElementById("grid-says");
  let groups = [], columns = 1, height = 0, tiles = new Map(), ink = "", chosen = null, isDue = false;

  // One picture for each state, as the legend shows it: letter and colours, light or dark.
  function makeTiles() {
    tiles = new Map();
    for (const element of document.querySelectorAll(".legend [data-state]")) {
      const style = getComputedStyle(element), tile = document.createElement("canvas"), scale = devicePixelRatio;
      tile.width = tile.height = CELL * scale;
      const brush = tile.getContext("2d");
      brush.scale(scale, scale);
      brush.fillStyle = style.backgroundColor;
      brush.beginPath();
      brush.roundRect(0, 0, CELL, CELL, 3);
      brush.fill();
      brush.fillStyle = style.color;
      brush.font = `600 10px ${style.fontFamily}`;
      brush.textAlign = "center";
      brush.textBaseline = "middle";
      brush.fillText(element.textContent, CELL / 2, CELL / 2 + 0.5);
      tiles.set(element.dataset.state, tile);
    }
    ink = getComputedStyle(grid).color;
  }

  function layOut() {
    const scale = devicePixelRatio;
    canvas.width = grid.clientWidth * scale;
    canvas.height = innerHeight * scale;
    canvas.style.width = `${grid.clientWidth}px`;
    canvas.style.height = `${innerHeight}px`;
    columns = Math.max(1, Math.floor((grid.clientWidth + GAP) / STEP));
    height = 0;
    for (const group of groups) {
      group.top = height;
      height += HEAD + Math.ceil(group.nodes.length / columns) * STEP + GAP;
    }
    grid.style.height = `${Math.max(height, 1)}px`;
    drawSoon();
  }

  const scrolled = () => Math.max(0, -grid.getBoundingClientRect().top);

  function draw() {
    isDue = false;
    const top = scrolled(), bottom = top + innerHeight, scale = devicePixelRatio;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, grid.clientWidth, innerHeight);
    pen.translate(0, -top);
    for (const group of groups) {
      const first = group.top + HEAD, rows = Math.ceil(group.nodes.length / columns);
      if (group.top > bottom || first + rows * STEP < top) continue;
      pen.fillStyle = ink;
      pen.font = `650 14px ${getComputedStyle(grid).fontFamily}`;
      pen.textBaseline = "middle";
      pen.fillText(`${group.name}  ${group.nodes.length}`, 0, group.top + HEAD / 2);
      const from = Math.max(0, Math.floor((top - first) / STEP)) * columns;
      const to = Math.min(group.nodes.length, Math.ceil((bottom - first) / STEP) * columns);
      for (let index = from; index < to; index++) {
        const x = (index % columns) * STEP, y = first + Math.floor(index / columns) * STEP;
        const tile = tiles.get(group.states[index]);
        if (tile) pen.drawImage(tile, x, y, CELL, CELL);
        if (chosen && chosen.group === group && chosen.index === index) {
          pen.strokeStyle = ink;
          pen.lineWidth = 2;
          pen.strokeRect(x, y, CELL, CELL);
        }
      }
    }
  }

  function drawSoon() {
    if (!isDue) requestAnimationFrame(draw);
    isDue = true;
  }

  function nodeAt(event) {
    const box = grid.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    for (const group of groups) {
      const row = Math.floor((y - group.top - HEAD) / STEP), column = Math.floor(x / STEP);
      const index = row * columns + column;
      if (row >= 0 && column >= 0 && column < columns && index < group.nodes.length) {
        if (y < group.top + HEAD + Math.ceil(group.nodes.length / columns) * STEP) return { group, index };
      }
    }
    return null;
  }

  function choose(place) {
    chosen = place;
    if (place) says.textContent = `${place.group.nodes[place.index]}: ${place.group.states[place.index]}`;
    drawSoon();
  }

  const open = (place) => location.assign(`/nodes/${encodeURIComponent(place.group.nodes[place.index])}`);

  function move(by) {
    const all = groups.findIndex((group) => chosen && group === chosen.group);
    let at = Math.max(all, 0), index = chosen ? chosen.index + by : 0;
    while (index < 0 && at > 0) index += groups[--at].nodes.length;
    while (index >= groups[at].nodes.length && at < groups.length - 1) index -= groups[at++].nodes.length;
    index = Math.min(Math.max(index, 0), groups[at].nodes.length - 1);
    choose({ group: groups[at], index });
    const y = groups[at].top + HEAD + Math.floor(index / columns) * STEP + grid.getBoundingClientRect().top;
    if (y < 60 || y > innerHeight - 60) scrollBy(0, y - innerHeight / 2);
  }

  // Reads the fleet page by page, and draws the first time as it comes.
  async function read(isFirst) {
    const byName = new Map();
    let address = grid.dataset.cells, count = 0;
    while (address) {
      const answer = await fetch(address);
      if (!answer.ok) throw new Error(`the page answers with ${answer.status}`);
      const page = await answer.json();
      for (const [name, node, state] of page.nodes) {
        let group = byName.get(name);
        if (!group) byName.set(name, (group = { name, nodes: [], states: [], top: 0 }));
        group.nodes.push(node);
        group.states.push(state);
      }
      count += page.nodes.length;
      address = page.next;
      if (isFirst || !address) {
        groups = [...byName.values()];
        if (chosen) {
          const group = byName.get(chosen.group.name);
          const index = group ? group.nodes.indexOf(chosen.group.nodes[chosen.index]) : -1;
          chosen = index >= 0 ? { group, index } : null;
        }
        layOut();
      }
      if (isFirst) says.textContent = `${count.toLocaleString("en")} nodes${address ? " so far" : ""}`;
    }
  }

  // A large fleet takes long to read: the pause after it is ten times as long, so that nobody pays for a page left open.
  async function follow() {
    for (let isFirst = true; ; isFirst = false) {
      const began = performance.now();
      try {
        await read(isFirst);
        grid.removeAttribute("aria-busy");
      } catch (error) {
        says.textContent = `Not fresh since ${new Date().toLocaleTimeString()}: ${error.message}.`;
      }
      await new Promise((done) => setTimeout(done, Math.max(2 * SECOND, 10 * (performance.now() - began))));
      while (document.hidden) await new Promise((done) => setTimeout(done, SECOND));
    }
  }

  grid.addEventListener("mousemove", (event) => choose(nodeAt(event)));
  grid.addEventListener("click", (event) => nodeAt(event) && open(nodeAt(event)));
  grid.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
    if (by && groups.length) move(by);
    else if (event.key === "Enter" && chosen) open(chosen);
    else return;
    event.preventDefault();
  });
  addEventListener("scroll", drawSoon, { passive: true });
  addEventListener("resize", layOut);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { makeTiles(); drawSoon(); });
  makeTiles();
  follow();
})();
