// Every text that can be seen and has less contrast to its ground than WCAG 2.2 asks for (AA, 4.5 to 1).
() => {
  const channels = (colour) => {
    const [red, green, blue, alpha = 1] = colour.match(/[\d.]+/g).map(Number);
    return { rgb: [red, green, blue], alpha };
  };
  const luminance = (rgb) => {
    const [red, green, blue] = rgb.map((each) => {
      const share = each / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ground = (element) => {
    for (let each = element; each !== null; each = each.parentElement) {
      const found = channels(getComputedStyle(each).backgroundColor);
      if (found.alpha === 1) return found.rgb;
    }
    return [255, 255, 255];
  };
  const texts = [...document.querySelectorAll("body *")].filter(
    (each) => each.checkVisibility() && [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim()),
  );
  const poor = texts.flatMap((each) => {
    const [one, other] = [channels(getComputedStyle(each).color).rgb, ground(each)].map(luminance);
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    return ratio < 4.5 ? [`${each.textContent} ${ratio.toFixed(2)}`] : [];
  });
  return { looked: texts.length, poor };
};
