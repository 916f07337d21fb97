// How fast the map is painted.

/**
 * Moves or zooms the map for some seconds, a step each frame, so that every frame is painted anew: frames a second, and
 * the milliseconds of the slowest ones.
 */
export const measure = (page, kind, seconds = 10) =>
  page.evaluate(async ({ kind, seconds }) => {
    const canvas = document.querySelector("canvas");
    const area = canvas.getBoundingClientRect();
    const at = { clientX: area.left + area.width / 2, clientY: area.top + area.height / 2, bubbles: true };
    const wheel = (deltaY) => canvas.dispatchEvent(new WheelEvent("wheel", { ...at, deltaY, cancelable: true }));
    const frames = [];
    let last = performance.now();
    const end = last + 1000 * seconds;
    let turn = 0;
    canvas.setPointerCapture = () => {};
    if (kind === "near") for (let i = 0; i < 12; i++) wheel(-120);
    canvas.dispatchEvent(new PointerEvent("pointerdown", { ...at, pointerId: 1 }));
    while (last < end) {
      await new Promise(requestAnimationFrame);
      const now = performance.now();
      frames.push(now - last);
      last = now;
      turn++;
      if (kind === "zoom") wheel(Math.sin(turn / 20) * 40);
      else {
        const [dx, dy] = [Math.sin(turn / 25) * 200, Math.cos(turn / 18) * 120];
        canvas.dispatchEvent(new PointerEvent("pointermove", { ...at, clientX: at.clientX + dx, clientY: at.clientY + dy, pointerId: 1 }));
      }
    }
    canvas.dispatchEvent(new PointerEvent("pointerup", { ...at, pointerId: 1 }));
    frames.sort((a, b) => a - b);
    const sum = frames.reduce((all, frame) => all + frame, 0);
    return { frames: frames.length, fps: (1000 * frames.length) / sum, slow: frames[Math.floor(frames.length * 0.95)], worst: frames.at(-1) };
  }, { kind, seconds });
