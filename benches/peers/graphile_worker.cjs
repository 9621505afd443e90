// graphile-worker on the work of `make bench`: `fill N`, then `drain N` with eight jobs at a time. Its
// local queue fetches jobs in batches, and finished ones are written in batches, as its manual advises
// for throughput.
const { spawn } = require("node:child_process");
const { Pool } = require("pg");
const { run, runMigrations } = require("graphile-worker");

const [, , what, count] = process.argv;
const connectionString = process.env.DATABASE_URL;

async function fill() {
  await runMigrations({ connectionString });
  const pool = new Pool({ connectionString });
  await pool.query("SELECT graphile_worker.add_job('shell') FROM generate_series(1, $1::int)", [count]);
  await pool.end();
}

async function drain() {
  let done = 0;
  let finish;
  const finished = new Promise((resolve) => (finish = resolve));
  const shell = () =>
    new Promise((resolve, reject) => {
      spawn("sh", ["-c", "true"], { stdio: "ignore" }).on("exit", (code) => {
        if (code !== 0) return reject(new Error(`exit ${code}`));
        resolve();
        if (++done === Number(count)) finish();
      });
    });
  const runner = await run({
    taskList: { shell },
    noHandleSignals: true,
    preset: {
      worker: {
        connectionString,
        concurrentJobs: 8,
        pollInterval: 100,
        localQueue: { size: 500 },
        completeJobBatchDelay: 0,
        logger: new (require("graphile-worker").Logger)(() => () => {}),
      },
    },
  });
  await finished;
  await runner.stop();
}

(what === "fill" ? fill() : drain()).catch((error) => {
  console.error(error);
  process.exit(1);
});
