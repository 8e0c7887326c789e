"use strict";
(function () {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const colours = JSON.parse(document.getElementById("dark-colours").textContent);
  const options = {
    responsive: true,
    displayModeBar: false,
  };

  function specification(name, isDark) {
    let text = document.getElementById(name + "-data").textContent;
    if (isDark) {
      text = text.replace(/#[0-9a-f]{6}/g, (colour) => colours[colour] || colour);
    }
    return JSON.parse(text);
  }

  function draw(plot, isDark, width) {
    try {
      const figure = specification(plot.id, isDark);
      if (width) {
        figure.layout.width = width;
        figure.layout.autosize = false;
      }
      Plotly.react(plot, figure.data, figure.layout, options);
      plot.dataset.drawn = isDark ? "dark" : "light";
    } catch (error) {
      plot.textContent = "This figure could not be drawn: " + error;
      plot.classList.add("failed");
    }
  }

  function drawAll(isDark, width) {
    for (const plot of document.querySelectorAll(".plot")) {
      draw(plot, isDark, width);
    }
  }

  drawAll(dark.matches, 0);
  dark.addEventListener("change", (event) => drawAll(event.matches, 0));
  window.addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details")) {
      part.open = true;
    }
    drawAll(false, 690);
  });
  window.addEventListener("afterprint", () => drawAll(dark.matches, 0));
})();
