// pg-boss on the work of `make bench`: `fill N`, then `drain N` with eight jobs at a time; or `work N`,
// which enqueues N jobs a second and prints a line when the first ones have ended. Its worker waits
// half a second between fetches, so `drain` fetches jobs by hand, 200 at a time, and completes them so.
// With a FILE after N, the jobs do no work and wait for others: the file has a JSON array of arrays,
// for each job the places of the jobs that it waits for. pg-boss looks for jobs that need no longer
// wait once a second, as often as it allows.
const { spawn } = require("node:child_process");
const { readFileSync } = require("node:fs");
const { pathToFileURL } = require("node:url");
const pace = require("./pace.cjs");

const [, , what, count, file] = process.argv;
const QUEUE = "shell";
const command = what === "work" ? ["true"] : ["sh", "-c", "true"];
const shell = () =>
  new Promise((resolve, reject) => {
    spawn(command[0], command.slice(1), { stdio: "ignore" }).on("exit", (code) =>
      code === 0 ? resolve() : reject(new Error(`exit ${code}`)),
    );
  });
const pause = () => new Promise((resolve) => setTimeout(resolve, 10));

function fill(boss) {
  const after = file ? JSON.parse(readFileSync(file)) : [];
  // A flow needs a dependency.
  if (after.every((places) => places.length === 0)) {
    return boss.insert(QUEUE, Array.from({ length: Number(count) }, () => ({})));
  }
  const job = (places, place) => ({ ref: `${place}`, name: QUEUE, dependsOn: places.map(String) });
  return boss.flow(after.map(job));
}

// Runs the command for each job, eight at a time.
function perform(jobs) {
  let next = 0;
  const lane = async () => {
    while (next < jobs.length) {
      next++;
      await shell();
    }
  };
  return Promise.all(Array.from({ length: 8 }, lane));
}

async function work(boss) {
  let done = 0;
  await boss.work(QUEUE, { batchSize: 1000, pollingIntervalSeconds: 0.5 }, async (jobs) => {
    await perform(jobs);
    if (done++ === 0) console.log("works");
  });
  await pace(Number(count), (jobs) => boss.insert(QUEUE, Array.from({ length: jobs }, () => ({}))));
}

async function main() {
  // It is an ES module, and `import` does not look into NODE_PATH.
  const { PgBoss } = await import(pathToFileURL(require.resolve("pg-boss")));
  const boss = new PgBoss({
    connectionString: process.env.DATABASE_URL,
    supervise: Boolean(file) && what === "drain",
    schedule: false,
    flowIntervalSeconds: 1,
  });
  boss.on("error", console.error);
  await boss.start();
  if (what !== "drain") await boss.createQueue(QUEUE);
  if (what === "fill") {
    await fill(boss);
  } else if (what === "work") {
    await work(boss);
  } else {
    for (let done = 0; done < Number(count); ) {
      const jobs = await boss.fetch(QUEUE, { batchSize: 200 });
      if (jobs.length === 0) {
        await pause();
        continue;
      }
      if (!file) await perform(jobs);
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
