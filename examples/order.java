// An order and its job, in one transaction: what an application in Java does.
//
//     java --class-path /usr/share/java/postgresql.jar examples/order.java

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;

class Order {
    static long order(Connection connection, int number) throws SQLException {
        try (var insert = connection.prepareStatement("INSERT INTO orders (id) VALUES (?)")) {
            insert.setInt(1, number);
            insert.executeUpdate();
        }
        var sql = "SELECT jobctl.enqueue('send_receipt', ?::jsonb, key => ?)";
        try (var enqueue = connection.prepareStatement(sql)) {
            // An application has a library for JSON.
            enqueue.setString(1, """
                {"order": %d, "note": "it's “ok” $1 %%s"}""".formatted(number));
            enqueue.setString(2, "receipt:" + number);
            var rows = enqueue.executeQuery();
            rows.next();
            return rows.getLong(1);
        }
    }

    public static void main(String[] arguments) throws SQLException {
        var environment = System.getenv();
        var address = "jdbc:postgresql://%s:%s/%s".formatted(
            environment.get("PGHOST"), environment.get("PGPORT"), environment.get("PGDATABASE"));
        var user = environment.get("PGUSER");
        try (var connection = DriverManager.getConnection(address, user, environment.get("PGPASSWORD"))) {
            connection.setAutoCommit(false);
            var kept = order(connection, 1);
            connection.commit();

            order(connection, 2);
            connection.rollback();

            try (var statement = connection.createStatement()) {
                statement.execute("SELECT jobctl.enqueue('send_receipt', '{}', key => 'receipt:1')");
            } catch (SQLException error) {
                System.out.println(kept + " " + error.getSQLState());
            }
        }
    }
}
