// pg-boss on the work of `make bench`: `fill N`, then `drain N` with eight jobs at a time. Its worker
// waits half a second between fetches, so jobs are fetched by hand, 200 at a time, and completed so.
const { spawn } = require("node:child_process");
const { pathToFileURL } = require("node:url");

const [, , what, count] = process.argv;
const QUEUE = "shell";
const shell = () =>
  new Promise((resolve, reject) => {
    spawn("sh", ["-c", "true"], { stdio: "ignore" }).on("exit", (code) =>
      code === 0 ? resolve() : reject(new Error(`exit ${code}`)),
    );
  });

async function main() {
  // It is an ES module, and `import` does not look into NODE_PATH.
  const { PgBoss } = await import(pathToFileURL(require.resolve("pg-boss")));
  const boss = new PgBoss({ connectionString: process.env.DATABASE_URL, supervise: false, schedule: false });
  boss.on("error", console.error);
  await boss.start();
  if (what === "fill") {
    await boss.createQueue(QUEUE);
    await boss.insert(QUEUE, Array.from({ length: Number(count) }, () => ({})));
  } else {
    for (let done = 0; done < Number(count); ) {
      const jobs = await boss.fetch(QUEUE, { batchSize: 200 });
      let next = 0;
      const lane = async () => {
        while (next < jobs.length) {
          next++;
          await shell();
        }
      };
      await Promise.all(Array.from({ length: 8 }, lane));
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
