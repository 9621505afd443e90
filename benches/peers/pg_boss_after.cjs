// pg-boss on the shapes of `make bench after`: `fill N SHAPE`, then `drain N SHAPE`, without work in
// its jobs. Its resolver of dependencies looks once a second, which is the shortest that it allows.
const { pathToFileURL } = require("node:url");

const [, , what, count, shape] = process.argv;
const QUEUE = "shell";
const runs = Number(count);
const LAYERS = 20;

function after(place) {
  const layer = runs / LAYERS;
  switch (shape) {
    case "one-parent":
      return place > 0 ? [0] : [];
    case "one-child":
      return place + 1 === runs ? Array.from({ length: place }, (_, n) => n) : [];
    case "layers": {
      if (place < layer) return [];
      const first = (Math.floor(place / layer) - 1) * layer;
      return [0, 1, 2].map((n) => first + ((place + n) % layer));
    }
    case "chain":
      return place > 0 ? [place - 1] : [];
    default:
      return [];
  }
}

async function main() {
  // It is an ES module, and `import` does not look into NODE_PATH.
  const { PgBoss } = await import(pathToFileURL(require.resolve("pg-boss")));
  const boss = new PgBoss({
    connectionString: process.env.DATABASE_URL,
    supervise: what === "drain",
    schedule: false,
    flowIntervalSeconds: 1,
  });
  boss.on("error", console.error);
  await boss.start();
  if (what === "fill") {
    await boss.createQueue(QUEUE);
    const jobs = Array.from({ length: runs }, (_, place) => ({
      ref: `${place}`,
      name: QUEUE,
      dependsOn: after(place).map(String),
    }));
    // A flow needs a dependency.
    await (shape === "none" ? boss.insert(QUEUE, jobs.map(() => ({}))) : boss.flow(jobs));
  } else {
    for (let done = 0; done < runs; ) {
      const jobs = await boss.fetch(QUEUE, { batchSize: 200 });
      if (jobs.length === 0) {
        await new Promise((resolve) => setTimeout(resolve, 10));
        continue;
      }
      await boss.complete(QUEUE, jobs.map((job) => job.id));
      done += jobs.length;
    }
  }
  await boss.stop({ graceful: false });
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
