// Opens the page of argument 1 on a telephone, a tablet, a laptop and a wall monitor, light and
// dark, with closed and open lanes. Prints what axe-core finds, pages that scroll sideways, parts
// that are missing on the first screen of a laptop, a third printed page, and the number of checks. Exits with 3 if the browser does not start.
import { readFileSync } from 'node:fs';
import chromium from '@sparticuz/chromium';
import puppeteer from 'puppeteer-core';

const axe = readFileSync('node_modules/axe-core/axe.min.js', 'utf8');
const executablePath = await chromium.executablePath();
const start = puppeteer.launch({ args: chromium.args, executablePath, headless: 'shell' });
const browser = await start.catch((error) => {
  console.error(error.message.trim().replace(/\s+/g, ' '));
  process.exit(3);
});
const page = await browser.newPage();
let checks = 0;
for (const width of [375, 768, 1440, 2560]) {
  for (const value of ['light', 'dark']) {
    await page.setViewport({ width, height: 900 });
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value }]);
    await page.goto('file://' + process.argv[1]);
    await page.evaluate(axe);
    for (const open of [false, true]) {
      const found = await page.evaluate(async (open) => {
        document.querySelectorAll('details').forEach((lane) => { lane.open = open; });
        const { scrollWidth, clientWidth } = document.documentElement;
        const { violations } = await window.axe.run({ resultTypes: ['violations'] });
        const found = violations.map(({ id, nodes }) => `${id}: ${nodes[0].html}`);
        return scrollWidth > clientWidth ? [...found, `${scrollWidth} pixels wide`] : found;
      }, open);
      found.forEach((one) => console.log(`${width} ${value} ${open ? 'open' : 'closed'}: ${one}`));
      checks += 1;
    }
  }
}
await page.setViewport({ width: 1440, height: 900 });
await page.goto('file://' + process.argv[1]);
for (const part of ['.headline', '.figures', '#now', '#incidents']) {
  const bottom = await page.$eval(part, (element) => element.getBoundingClientRect().bottom);
  if (bottom > 700) console.log(`${part} ends at ${bottom}`);
  checks += 1;
}
const pdf = Buffer.from(await page.pdf({ format: 'A4' })).toString('latin1');
const pages = pdf.match(/\/Type \/Page\b/g).length;
if (pages > 2) console.log(`${pages} printed pages`);
checks += 1;
await browser.close();
console.log(`checks: ${checks}`);
