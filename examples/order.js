// An order and its job, in one transaction: what an application in JavaScript does.
const { Client } = require('pg');

async function order(client, number) {
    await client.query('INSERT INTO orders (id) VALUES ($1)', [number]);
    const { rows } = await client.query(
        "SELECT jobctl.enqueue('send_receipt', $1, key => $2) AS id",
        [{ order: number, note: "it's “ok” $1 %s" }, `receipt:${number}`],
    );
    return rows[0].id;
}

async function main() {
    // The driver reads the address from PGHOST and its kind.
    const client = new Client();
    await client.connect();

    await client.query('BEGIN');
    const kept = await order(client, 1);
    await client.query('COMMIT');

    await client.query('BEGIN');
    await order(client, 2);
    await client.query('ROLLBACK');

    const code = await client
        .query("SELECT jobctl.enqueue('send_receipt', '{}', key => 'receipt:1')")
        .then(() => 'none', (error) => error.code);
    console.log(kept, code);
    await client.end();
}

main();
