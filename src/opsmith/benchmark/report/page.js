// Draws each figure with Chart.js, sorts tables, hands out the rows. What is drawn was decided in figures.py.
"use strict";

(() => {
  const specs = JSON.parse(document.getElementById("figures").textContent);
  const root = document.documentElement;
  const SHAPES = ["circle", "triangle", "rect", "rectRot", "triangle", "rectRounded", "cross", "star"];
  const NARROW = 480;
  const charts = new Map();

  // --- words for numbers ---------------------------------------------------------------------------------------

  const three = (value) => Number(value.toPrecision(3)).toLocaleString("en", { maximumFractionDigits: 6 });

  function scaled(value, unit) {
    const steps = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
    const [scale, prefix] = steps.find(([each]) => value >= each) || [1, ""];
    return `${three(value / scale)} ${prefix}${unit}`.trim();
  }

  function binary(value, unit) {
    const steps = [[2 ** 40, " T"], [2 ** 30, " G"], [2 ** 20, " M"], [2 ** 10, " K"]];
    const [scale, prefix] = steps.find(([each]) => value >= each) || [1, ""];
    return three(value / scale) + (unit === "bytes" && prefix ? `${prefix}iB` : prefix);
  }

  const words = {
    "": three,
    elements: (value) => binary(value, ""),
    bytes: (value) => binary(value, "bytes"),
    "FLOP/s": (value) => scaled(value, "FLOP/s"),
    "B/s": (value) => scaled(value, "B/s"),
  };

  // --- axes ----------------------------------------------------------------------------------------------------

  // Ticks of a logarithmic axis: powers where it spans decades, finer steps where it does not.
  function logTicks(low, high, base, most) {
    if (base === 2) {
      const first = Math.ceil(Math.log2(low) - 1e-9), last = Math.floor(Math.log2(high) + 1e-9);
      const step = [1, 2, 5, 10, 20].find((each) => (last - first) / each < most) || 40;
      const ticks = [];
      for (let power = Math.ceil(first / step) * step; power <= last; power += step) ticks.push(2 ** power);
      return ticks;
    }
    const candidates = [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 5, 7], [1, 1.1, 1.2, 1.3, 1.5, 1.7, 2, 2.5, 3, 4, 5, 6, 7, 8, 9, 9.5]];
    let best = [];
    for (const steps of candidates) {
      const ticks = [];
      for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
        for (const step of steps) {
          const value = Number((step * 10 ** power).toPrecision(6));
          if (value >= low * 0.999 && value <= high * 1.001) ticks.push(value);
        }
      }
      if (best.length && ticks.length > most) break;
      best = ticks;
    }
    if (best.length > most) best = best.filter((_, index) => index % Math.ceil(best.length / most) === 0);
    return best;
  }

  function axis(spec, range, style, narrow, isX) {
    const binaryUnit = spec.unit === "elements" || spec.unit === "bytes";
    const say = spec.say || words[spec.unit] || three;
    const most = isX ? (narrow ? 4 : 7) : 6;
    return {
      type: spec.log ? "logarithmic" : "linear",
      min: range[0],
      max: range[1],
      title: { display: true, text: spec.title, color: style.soft, font: { size: 12 } },
      grid: { color: style.grid, tickLength: 4 },
      border: { color: style.line },
      ticks: { color: style.soft, callback: (value) => say(value), maxRotation: 0, autoSkip: !spec.log, maxTicksLimit: most, includeBounds: false },
      afterBuildTicks: (scale) => {
        if (!spec.log) return;
        scale.ticks = logTicks(scale.min, scale.max, binaryUnit ? 2 : 10, most).map((value) => ({ value }));
      },
    };
  }

  function spanned(values, log, margin) {
    const low = Math.min(...values), high = Math.max(...values);
    return log ? [low / margin, high * margin] : [0, high * 1.08];
  }

  // --- the two kinds of chart ----------------------------------------------------------------------------------

  function pointsConfig(spec, style, narrow) {
    const joined = spec.kind === "lines";
    const shown = spec.series.flatMap((series) => series.points).concat(spec.lines.flatMap((line) => line.points));
    const datasets = spec.series.map((series) => ({
      label: series.name,
      data: series.points,
      showLine: joined,
      borderColor: style.marks[series.mark],
      backgroundColor: series.points.map((point) => (point.hollow ? "transparent" : style.marks[series.mark])),
      borderWidth: joined ? 2 : 1.5,
      pointStyle: SHAPES[series.mark],
      rotation: series.mark === 4 ? 180 : 0,
      pointRadius: joined ? 3.5 : narrow ? 3.5 : 4,
      pointHoverRadius: 7,
      order: series.mark,
    }));
    const lines = spec.lines.map((line) => ({
      label: line.label,
      data: line.points,
      showLine: true,
      borderColor: style.soft,
      borderWidth: line.label ? 1.25 : 0.75,
      borderDash: joined || !line.label ? [5, 4] : [],
      left: line.left,
      pointRadius: 0,
      pointHitRadius: 0,
      order: 99,
      roof: true,
    }));
    return {
      type: "scatter",
      data: { datasets: [...datasets, ...lines] },
      options: {
        scales: {
          x: axis(spec.x, spanned(shown.map((point) => point.x), spec.x.log, joined ? 1.15 : 1.25), style, narrow, true),
          y: axis(spec.y, spanned(shown.map((point) => point.y), spec.y.log, 1.6), style, narrow, false),
        },
        plugins: { tooltip: { filter: (item) => !item.dataset.roof, callbacks: { label: (item) => wrapped(item.raw.text, narrow) } } },
      },
      plugins: [roofLabels],
    };
  }

  function barsConfig(spec, style, narrow) {
    const longest = narrow ? 16 : 30;
    const full = spec.labels.map((parts) => parts.join(" "));
    const labels = spec.labels.map((parts) => (narrow ? parts : [parts.join(" ")]).map((part) => shortened(part, longest)));
    const datasets = spec.series.map((series) => ({
      label: series.name,
      data: series.values,
      backgroundColor: style.marks[series.mark],
      base: spec.base,
      barThickness: 8,
      low: series.low,
      high: series.high,
      texts: series.texts,
    }));
    const values = datasets.flatMap((set) => [...set.data, ...(set.low || []), ...(set.high || [])]).filter((value) => value !== null);
    const say = spec.base === 1 || spec.at ? (value) => `${three(value)}×` : three;
    return {
      type: "bar",
      data: { labels, datasets },
      options: {
        indexAxis: "y",
        scales: {
          x: axis({ ...spec.x, say }, spec.base === 1 ? spanned([...values, 1], true, 1.12) : spanned([...values, spec.at || 0], false), style, narrow, true),
          y: {
            grid: { display: false },
            border: { color: style.line },
            ticks: {
              color: style.ink,
              autoSkip: false,
            },
          },
        },
        plugins: {
          tooltip: {
            callbacks: {
              title: (items) => wrapped(full[items[0].dataIndex], narrow),
              label: (item) => wrapped(item.dataset.texts[item.dataIndex], narrow),
            },
          },
        },
      },
      plugins: [whiskers, { id: "unity", afterDraw: (chart) => unity(chart, spec, style) }],
    };
  }

  const shortened = (text, longest) => (text.length > longest ? `${text.slice(0, longest - 1)}…` : text);

  function wrapped(text, narrow) {
    const longest = narrow ? 34 : 64, lines = [""];
    for (const word of String(text).split(" ")) {
      const last = lines[lines.length - 1];
      if (last && last.length + word.length >= longest) lines.push(word);
      else lines[lines.length - 1] = last ? `${last} ${word}` : word;
    }
    return lines;
  }

  // The 95 % interval, a thin line through the end of its bar.
  const whiskers = {
    id: "whiskers",
    afterDatasetsDraw(chart) {
      const { ctx, scales: { x } } = chart;
      ctx.save();
      ctx.strokeStyle = chart.config.options.ink;
      ctx.globalAlpha = 0.7;
      ctx.lineWidth = 1;
      chart.data.datasets.forEach((set, place) => {
        chart.getDatasetMeta(place).data.forEach((bar, index) => {
          const low = set.low && set.low[index], high = set.high && set.high[index];
          if (!low || !high) return;
          const [left, right] = [x.getPixelForValue(low), x.getPixelForValue(high)];
          ctx.beginPath();
          ctx.moveTo(left, bar.y);
          ctx.lineTo(right, bar.y);
          for (const end of [left, right]) {
            ctx.moveTo(end, bar.y - 2.5);
            ctx.lineTo(end, bar.y + 2.5);
          }
          ctx.stroke();
        });
      });
      ctx.restore();
    },
  };

  // Where the two are equal: the line that bars begin at, or must not pass.
  function unity(chart, spec, style) {
    const at = spec.base === 1 ? 1 : spec.at;
    if (!at) return;
    const { ctx, chartArea, scales: { x } } = chart;
    const place = x.getPixelForValue(at);
    ctx.save();
    ctx.strokeStyle = style.ink;
    ctx.lineWidth = 1;
    ctx.beginPath();
    ctx.moveTo(place, chartArea.top);
    ctx.lineTo(place, chartArea.bottom);
    ctx.stroke();
    ctx.restore();
  }

  // The name of a roof, written along it, inside of the chart.
  const roofLabels = {
    id: "roofLabels",
    afterDatasetsDraw(chart) {
      const { ctx, chartArea, scales: { x, y } } = chart;
      ctx.save();
      ctx.font = `11px ${Chart.defaults.font.family}`;
      ctx.fillStyle = chart.config.options.soft;
      ctx.strokeStyle = chart.config.options.paper;
      ctx.lineWidth = 4;
      ctx.lineJoin = "round";
      const write = (text, left, top) => {
        ctx.strokeText(text, left, top); // what lies below is kept off the letters
        ctx.fillText(text, left, top);
      };
      for (const set of chart.data.datasets.filter((each) => each.roof && each.label)) {
        const [start, end] = set.data.map((point) => [x.getPixelForValue(point.x), y.getPixelForValue(point.y)]);
        const angle = Math.atan2(end[1] - start[1], end[0] - start[0]);
        const isFlat = Math.abs(angle) < 0.02, length = ctx.measureText(set.label).width;
        ctx.save();
        if (isFlat) {
          ctx.textAlign = set.left ? "left" : "right";
          const at = set.left ? Math.max(start[0], chartArea.left) + 4 : Math.min(end[0], chartArea.right) - 4;
          write(set.label, at, set.left ? start[1] + 13 : start[1] - 6);
        } else {
          const along = Math.min(0.12 * Math.hypot(end[0] - start[0], end[1] - start[1]), length);
          ctx.translate(start[0] + Math.cos(angle) * along, start[1] + Math.sin(angle) * along);
          ctx.rotate(angle);
          write(set.label, 0, -6);
        }
        ctx.restore();
      }
      ctx.restore();
    },
  };

  // --- drawing -------------------------------------------------------------------------------------------------

  function styleNow() {
    const held = getComputedStyle(root), read = (name) => held.getPropertyValue(`--${name}`).trim();
    return {
      paper: read("paper"), ink: read("ink"), soft: read("soft"), line: read("line"), grid: read("grid"), sans: read("sans"),
      marks: SHAPES.map((_, place) => read(`mark-${place}`)),
    };
  }

  function heightOf(spec, width) {
    if (spec.kind === "bars") {
      const lines = width < NARROW ? Math.max(...spec.labels.map((parts) => parts.length)) : 1;
      return 56 + spec.labels.length * Math.max(spec.series.length * 10 + 10, lines * 15 + 6);
    }
    return Math.round(Math.min(360, Math.max(230, width * (spec.kind === "lines" ? 0.55 : 0.68))));
  }

  function draw(plot) {
    const spec = specs[Number(plot.dataset.figure)], style = styleNow(), width = plot.clientWidth;
    if (!width) return; // behind a line that is not opened yet
    charts.get(plot)?.destroy();
    plot.style.height = `${heightOf(spec, width)}px`;
    const config = (spec.kind === "bars" ? barsConfig : pointsConfig)(spec, style, width < NARROW);
    Chart.defaults.font.family = style.sans;
    config.options = {
      ...config.options,
      animation: false,
      responsive: true,
      maintainAspectRatio: false,
      ink: style.ink,
      soft: style.soft,
      paper: style.paper,
      devicePixelRatio: Math.max(2, window.devicePixelRatio),
      plugins: {
        legend: { display: false },
        ...config.options.plugins,
        tooltip: {
          backgroundColor: style.ink,
          titleColor: style.paper,
          bodyColor: style.paper,
          displayColors: false,
          padding: 8,
          ...config.options.plugins.tooltip,
        },
      },
    };
    charts.set(plot, new Chart(plot.querySelector("canvas"), config));
  }

  const drawAll = () => document.querySelectorAll(".plot").forEach(draw);

  // --- tables --------------------------------------------------------------------------------------------------

  function sort(head) {
    const table = head.closest("table"), heads = [...head.parentElement.children], column = heads.indexOf(head);
    const down = head.getAttribute("aria-sort") === "ascending";
    const isNumber = head.classList.contains("number");
    const key = (row) => row.children[column].dataset.sort;
    const rows = [...table.tBodies[0].rows];
    rows.sort((first, second) => {
      const a = key(first), b = key(second);
      if (a === undefined || b === undefined) return (a === undefined) - (b === undefined); // empty cells stay last
      const order = isNumber ? Number(a) - Number(b) : a.localeCompare(b, "en", { numeric: true });
      return down ? -order : order;
    });
    table.tBodies[0].append(...rows);
    for (const each of heads) each.setAttribute("aria-sort", each === head ? (down ? "descending" : "ascending") : "none");
  }

  // --- and all of it -------------------------------------------------------------------------------------------

  document.querySelectorAll(".sortable th button").forEach((button) => {
    button.addEventListener("click", () => sort(button.closest("th")));
  });

  const files = [...document.querySelectorAll("script.rows")];
  document.querySelectorAll("a.download").forEach((link) => {
    const held = files[Number(link.dataset.file)];
    link.download = held.dataset.name.split("/").pop();
    link.href = URL.createObjectURL(new Blob([held.textContent], { type: "application/json" }));
  });

  document.querySelectorAll("details").forEach((part) => {
    part.addEventListener("toggle", () => part.open && part.querySelectorAll(".plot").forEach((plot) => charts.has(plot) || draw(plot)));
  });

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);

  // Paper is white and of a width of its own, and nothing can be opened on it.
  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((part) => (part.open = true));
    root.classList.add("printing");
    drawAll();
  });
  window.addEventListener("afterprint", () => {
    root.classList.remove("printing");
    closed.forEach((part) => (part.open = false));
    drawAll();
  });

  drawAll();
  root.dataset.drawn = "yes";
})();
