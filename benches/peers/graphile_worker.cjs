// graphile-worker on the work of `make bench`: `fill N`, then `drain N` with eight jobs at a time; or
// `work N`, which enqueues N jobs a second and prints a line when the first one has ended. Its local
// queue fetches jobs in batches, and finished ones are written in batches, as its manual advises
// for throughput.
const { spawn } = require("node:child_process");
const { Pool } = require("pg");
const pace = require("./pace.cjs");
const { makeWorkerUtils, run, runMigrations } = require("graphile-worker");

const [, , what, count] = process.argv;
const connectionString = process.env.DATABASE_URL;

async function fill() {
  await runMigrations({ connectionString });
  const pool = new Pool({ connectionString });
  await pool.query("SELECT graphile_worker.add_job('shell') FROM generate_series(1, $1::int)", [count]);
  await pool.end();
}

// Starts a worker that runs this command for each job.
function start(command, ended) {
  const shell = () =>
    new Promise((resolve, reject) => {
      spawn(command[0], command.slice(1), { stdio: "ignore" }).on("exit", (code) => {
        if (code !== 0) return reject(new Error(`exit ${code}`));
        resolve();
        ended();
      });
    });
  return run({
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
}

async function drain() {
  let done = 0;
  let finish;
  const finished = new Promise((resolve) => (finish = resolve));
  const runner = await start(["sh", "-c", "true"], () => ++done === Number(count) && finish());
  await finished;
  await runner.stop();
}

async function work() {
  await runMigrations({ connectionString });
  let done = 0;
  await start(["true"], () => done++ === 0 && console.log("works"));
  const application = await makeWorkerUtils({ connectionString });
  await pace(Number(count), (jobs) =>
    application.addJobs(Array.from({ length: jobs }, () => ({ identifier: "shell" }))),
  );
}

({ fill, drain, work })[what]().catch((error) => {
  console.error(error);
  process.exit(1);
});
