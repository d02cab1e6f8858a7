// Builds the page's program and style into dist/, or with --check says whether dist/ is what the sources give.
import { build } from "esbuild";
import { mkdir, readFile, writeFile } from "node:fs/promises";

const root = new URL(".", import.meta.url);
const banner = "/*! Bundles ECharts 6.1.0 (Apache-2.0), ZRender 6.1.0 (BSD-3-Clause), tslib 2.3.0 (0BSD); see LICENSES.txt. */";

async function bundle(entry) {
  const result = await build({
    entryPoints: [new URL(entry, root).pathname],
    absWorkingDir: root.pathname,
    bundle: true,
    minify: true,
    write: false,
    charset: "utf8",
    format: "iife",
    target: ["es2022", "chrome110", "firefox110", "safari16"],
    legalComments: "none",
    define: { "process.env.NODE_ENV": '"production"', __DEV__: "false" },
  });
  return `${banner}\n${result.outputFiles[0].text}`;
}

async function licenses() {
  const packages = ["echarts", "zrender", "tslib"];
  const texts = await Promise.all(
    packages.map(async (name) => {
      const folder = new URL(`node_modules/${name}/`, root);
      const { version } = JSON.parse(await readFile(new URL("package.json", folder), "utf8"));
      const names = name === "tslib" ? ["LICENSE.txt"] : name === "echarts" ? ["LICENSE", "NOTICE"] : ["LICENSE"];
      const parts = await Promise.all(names.map((file) => readFile(new URL(file, folder), "utf8")));
      return `==== ${name} ${version} ====\n\n${parts.join("\n").trim()}\n`;
    }),
  );
  return texts.join("\n").replaceAll("\r\n", "\n").replaceAll(/[ \t]+$/gm, "");
}

const files = {
  "dashboard.js": await bundle("src/main.js"),
  "dashboard.css": await bundle("src/style.css").then((text) => text.slice(banner.length + 1)),
  "index.html": await readFile(new URL("src/index.html", root), "utf8"),
  "LICENSES.txt": await licenses(),
};

const dist = new URL("dist/", root);
await mkdir(dist, { recursive: true });
for (const [name, text] of Object.entries(files)) {
  const place = new URL(name, dist);
  if (process.argv.includes("--check")) {
    if ((await readFile(place, "utf8").catch(() => undefined)) !== text) {
      console.error(`dist/${name} is not what the sources give; run: npm run build`);
      process.exitCode = 1;
    }
  } else {
    await writeFile(place, text);
    console.log(`dist/${name}: ${(text.length / 1024).toFixed(0)} KiB`);
  }
}
