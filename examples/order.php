<?php
// An order and its job, in one transaction: what an application in PHP does.

// libpq reads the address from PGHOST and its kind.
$connection = new PDO('pgsql:');

function order(PDO $connection, int $number): int
{
    $connection->prepare('INSERT INTO orders (id) VALUES (?)')->execute([$number]);
    $enqueue = $connection->prepare("SELECT jobctl.enqueue('send_receipt', ?, key => ?)");
    $payload = ['order' => $number, 'note' => 'it\'s “ok” $1 %s'];
    $enqueue->execute([json_encode($payload), "receipt:$number"]);
    return $enqueue->fetchColumn();
}

$connection->beginTransaction();
$kept = order($connection, 1);
$connection->commit();

$connection->beginTransaction();
try {
    order($connection, 2);
    throw new RuntimeException('the order is refused');
} catch (RuntimeException) {
    $connection->rollBack();
}

try {
    $connection->query("SELECT jobctl.enqueue('send_receipt', '{}', key => 'receipt:1')");
} catch (PDOException $error) {
    $code = $error->getCode();
}
echo "$kept $code\n";
