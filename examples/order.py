"""An order and its job, in one transaction: what an application in Python does."""

import psycopg
from psycopg.types.json import Jsonb

# libpq reads the address from PGHOST and its kind.
with psycopg.connect("") as connection:

    def order(number):
        connection.execute("INSERT INTO orders (id) VALUES (%s)", (number,))
        return connection.execute(
            "SELECT jobctl.enqueue('send_receipt', %s, key => %s)",
            (Jsonb({"order": number, "note": "it's “ok” $1 %s"}), f"receipt:{number}"),
        ).fetchone()[0]

    with connection.transaction():
        kept = order(1)

    try:
        with connection.transaction():
            order(2)
            raise RuntimeError("the order is refused")
    except RuntimeError:
        pass

    try:
        connection.execute("SELECT jobctl.enqueue('send_receipt', '{}', key => 'receipt:1')")
    except psycopg.Error as error:
        code = error.sqlstate
    print(kept, code)
    connection.rollback()
