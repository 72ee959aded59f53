# Errors in the middle of statements leave nothing behind, however many and however deep (cases F16, F21).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Test::More;

my $server = Sluice->start('errors', roles => ['app'], conf => { max_connections => 30 });
$server->run('CREATE TABLE secret (i int); CREATE TABLE t (i int); GRANT ALL ON t TO app');
$server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => $PATIENT } } });


subtest 'case F16: 5000 statements that fail' => sub {
  my $session = $server->connect('app');
  $session->run('DO $$ BEGIN NULL; END $$');
  # Each kind: SQLSTATE, how often, the statements of one round.
  my @kind = (
    [ 'in ExecutorRun', '22012', 2000, 'SELECT 1/g FROM generate_series(0, 0) g' ],
    [ 'in ExecutorStart behind our hook', '42501', 1000, 'SELECT * FROM secret' ],
    [ 'in a utility', '22P02', 1000, q{DO $$ BEGIN PERFORM 'x'::int FROM t LIMIT 1; PERFORM 'x'::int; END $$} ],
    [ 'in a trigger at commit', '23514', 500, 'INSERT INTO checked VALUES (1)' ],
    [ 'by statement_timeout', '57014', 500, 'SELECT pg_sleep(600)' ],
  );
  $server->run(<<'SQL');
CREATE TABLE checked (i int);
GRANT ALL ON checked TO app;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE check_violation; END $$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON checked DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse();
SQL
  for my $kind (@kind) {
    my ($name, $code, $count, $sql) = @$kind;
    $session->run('SET statement_timeout = ' . ($code eq '57014' ? 1 : 0));
    my $other = 0;
    for my $round (1 .. $count / 50) {
      $session->send_raw(join '', map { Sluice::Wire::query_message($sql) } 1 .. 50);
      for (1 .. 50) { my $error = $session->finish->{error}; $other++ if ($error ? $error->{code} : '') ne $code; }
    }
    is($other, 0, "$count statements fail $name");
    is($server->holders, 0, 'and hold nothing');
  }
  $session->persist('SET statement_timeout = 0');
  # Cancelled by somebody else while they run.
  my $missed = 0;
  for my $round (1 .. 30) {
    $session->send_query('SELECT pg_sleep(600)');
    $server->wait_holders(1);
    $server->run('SELECT pg_cancel_backend(' . $session->pid . ')');
    $missed++ if $session->finish->{error}{code} ne '57014';
  }
  is($missed, 0, '30 statements are cancelled while they run');
  is($session->value('SELECT 42'), 42, 'the next statement runs');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case F21: errors caught in PL/pgSQL and behind savepoints' => sub {
  my $session = $server->connect('app');
  my $before = $server->admitted;
  my $catch = q{DO $$ BEGIN FOR i IN 1 .. 100 LOOP BEGIN PERFORM 1/(i - i); EXCEPTION WHEN division_by_zero THEN PERFORM count(*) FROM t; END; END LOOP; END $$};
  $session->run($catch);
  is($server->admitted - $before, 1, '100 caught errors inside one statement: one permit');
  $session->run('BEGIN');
  for my $round (1 .. 100) {
    $session->run('SAVEPOINT s');
    $session->query($round % 2 ? 'SELECT 1/g FROM generate_series(0, 0) g' : 'SELECT * FROM secret');
    $session->run('ROLLBACK TO s');
    $session->run($catch) if $round % 25 == 0;
  }
  is($server->holders, 1, 'the transaction keeps its one permit over 100 rolled back savepoints');
  $session->run('COMMIT');
  is($server->admitted - $before, 2, 'and was admitted once');
  is($server->holders, 0, 'its end gives the permit back');
  $before = $server->admitted;
  for my $round (1 .. 20) { $session->run('SELECT 1'); }
  is($server->admitted - $before, 20, 'afterwards every top-level statement is admitted once');
  my $holder = $server->connect('app');
  $holder->run('BEGIN');
  $holder->run('SELECT 1');
  $session->send_query('SELECT 1');
  ok($server->wait_waiters(1), 'and waits like any other while the class is full');
  $holder->run('COMMIT');
  is($session->finish->{error}, undef, 'until it is granted');
  # An error inside a function that is called while another one's handler runs; nested three deep.
  $server->run(<<'SQL');
CREATE FUNCTION deep(n int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
  BEGIN
    IF n > 0 THEN PERFORM deep(n - 1); END IF;
    PERFORM 1/0;
  EXCEPTION WHEN OTHERS THEN
    IF n > 0 THEN PERFORM deep(n - 1); END IF;
  END;
  RETURN n;
END $$
SQL
  $before = $server->admitted;
  is($session->value('SELECT deep(4)'), 4, 'nested handlers');
  is($session->code('SELECT deep(2), 1/g FROM generate_series(0, 0) g'), '22012', 'nested handlers in a statement that fails');
  is($server->admitted - $before, 2, 'each top-level statement took one permit');
  $server->ledger_is_zero('the ledger is zero');
};

$server->server_log_is_clean('cases F16, F21: nothing crashed');
done_testing();
