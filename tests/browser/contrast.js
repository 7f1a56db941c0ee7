// Return every visible text with less contrast to its background than WCAG 2.2 requires (AA, 4.5 to 1).
() => {
  const channels = (colour) => {
    const [red, green, blue, alpha = 1] = colour.match(/[\d.]+/g).map(Number);
    return { rgb: [red, green, blue], alpha };
  };
  const luminance = (rgb) => {
    const [red, green, blue] = rgb.map((channel) => {
      const share = channel / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ground = (element) => {
    for (let current = element; current !== null; current = current.parentElement) {
      const found = channels(getComputedStyle(current).backgroundColor);
      if (found.alpha === 1) return found.rgb;
    }
    return [255, 255, 255];
  };
  const texts = [...document.querySelectorAll("body *")].filter(
    (text) => text.checkVisibility() && [...text.childNodes].some((node) => node.nodeType === 3 && node.data.trim()),
  );
  const poor = texts.flatMap((text) => {
    const [one, other] = [channels(getComputedStyle(text).color).rgb, ground(text)].map(luminance);
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    return ratio < 4.5 ? [`${text.textContent} ${ratio.toFixed(2)}`] : [];
  });
  return { checked: texts.length, poor };
};
