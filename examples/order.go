// An order and its job, in one transaction: what an application in Go does.
//
//	GO111MODULE=off GOPATH=/usr/share/gocode go run examples/order.go
//
// That finds the driver of Debian's golang-github-jackc-pgx-v4-dev. In a module, `go get` it.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgconn"
	"github.com/jackc/pgx/v4"
)

func order(ctx context.Context, tx pgx.Tx, number int) (int64, error) {
	if _, err := tx.Exec(ctx, "INSERT INTO orders (id) VALUES ($1)", number); err != nil {
		return 0, err
	}
	var run int64
	payload := map[string]any{"order": number, "note": "it's “ok” $1 %s"}
	row := tx.QueryRow(ctx, "SELECT jobctl.enqueue('send_receipt', $1::jsonb, key => $2)",
		payload, fmt.Sprintf("receipt:%d", number))
	err := row.Scan(&run)
	return run, err
}

func main() {
	ctx := context.Background()
	// pgx reads the address from PGHOST and its kind.
	connection, err := pgx.Connect(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close(ctx)

	var kept int64
	err = connection.BeginFunc(ctx, func(tx pgx.Tx) (err error) {
		kept, err = order(ctx, tx, 1)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}

	refused := errors.New("the order is refused")
	err = connection.BeginFunc(ctx, func(tx pgx.Tx) error {
		if _, err := order(ctx, tx, 2); err != nil {
			return err
		}
		return refused
	})
	// The job is gone with the order.
	if !errors.Is(err, refused) {
		log.Fatal(err)
	}

	_, err = connection.Exec(ctx, "SELECT jobctl.enqueue('send_receipt', '{}', key => 'receipt:1')")
	var taken *pgconn.PgError
	if !errors.As(err, &taken) {
		log.Fatal(err)
	}
	fmt.Println(kept, taken.Code)
}
