# An order and its job, in one transaction: what an application in Ruby does.
require 'json'
require 'pg'

# libpq reads the address from PGHOST and its kind.
connection = PG.connect

def order(connection, number)
  connection.exec_params('INSERT INTO orders (id) VALUES ($1)', [number])
  payload = { order: number, note: 'it\'s “ok” $1 %s' }
  connection.exec_params(
    "SELECT jobctl.enqueue('send_receipt', $1, key => $2)",
    [payload.to_json, "receipt:#{number}"]
  ).getvalue(0, 0)
end

kept = connection.transaction { order(connection, 1) }

begin
  connection.transaction do
    order(connection, 2)
    raise 'the order is refused'
  end
rescue RuntimeError
  # The job is gone with the order.
end

begin
  connection.exec("SELECT jobctl.enqueue('send_receipt', '{}', key => 'receipt:1')")
rescue PG::Error => error
  code = error.result.error_field(PG::PG_DIAG_SQLSTATE)
end
puts "#{kept} #{code}"
