// Enqueues `rate` jobs a second, without end: each call of `enqueue` gets the number of jobs that are due.
module.exports = async function pace(rate, enqueue) {
  const started = Date.now();
  for (let sent = 0; ; ) {
    const due = Math.floor(((Date.now() - started) / 1000) * rate) + 1;
    if (due > sent) await enqueue(due - sent);
    sent = due;
    await new Promise((resolve) => setTimeout(resolve, Math.max(1, 1000 / rate)));
  }
};
