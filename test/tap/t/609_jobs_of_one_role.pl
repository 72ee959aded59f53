# The worked example of an application whose web requests and background jobs share one role and one pool of connections: each job
# declares its class, and whatever it starts counts as the job's (requirements P1, P3).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Test::More;

my $server = Sluice->start('jobs', roles => ['shop'], conf => { max_connections => 40 });
$server->run('CREATE TABLE orders (id int); GRANT ALL ON orders TO shop; GRANT CREATE ON SCHEMA public TO shop');
$server->apply({
  classes => { interactive => { permits => 2, queueDeadlineMs => $PATIENT, mayEnter => ['batch'] }, batch => { permits => 1, queueDeadlineMs => $PATIENT } } });

# What the application's job runner does with a connection of the pool: SET, the work, RESET.
sub begin_job { my ($wire) = @_; $wire->run(q{SET pg_sluice.class = 'batch'}); return $wire; }
sub end_job { my ($wire) = @_; $wire->run('RESET pg_sluice.class'); return $wire; }

# A web request of the same role, by another connection of the pool.
my $web = $server->connect('shop');
$web->run(q{CREATE PROCEDURE many() LANGUAGE plpgsql AS $$ BEGIN FOR i IN 1..3 LOOP INSERT INTO orders VALUES (i); COMMIT; END LOOP; PERFORM pg_sleep(600); END $$});
$web->run(q{CREATE FUNCTION deep() RETURNS int LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'SELECT pg_sleep(600)'; RETURN 1; END $$});

sub waited { return $server->value(q{SELECT waited FROM sluice.classes WHERE class = 'interactive'}); }

# With these jobs started (the first of them runs), a web request waits for none of them.
sub web_is_served {
  my ($name, @sql) = @_;
  my $before = waited();
  my @job = map { begin_job($server->connect('shop')) } 0 .. 4;
  $job[$_]->send_query($sql[ $_ % @sql ]) for 0 .. $#job;
  ok($server->wait_waiters(4, 'batch'), "$name: one of five jobs runs, four wait in their own class");
  is(scalar(grep { $web->code('SELECT count(*) FROM orders') ne '' } 1 .. 20), 0, "$name: 20 web requests of the same role run");
  is(waited(), $before, "$name: and none of them waited");
  is($server->holders('batch'), 1, "$name: the job holds its one permit");
  is($server->holders('interactive'), 0, "$name: and nothing of the interactive class");
  $_->cancel for reverse @job;
  for my $wire (@job) { $wire->finish; }
  is($server->holders, 0, "$name: nothing is held when they were cancelled");
  return @job;
}

subtest 'what a job starts counts as the job that started it' => sub {
  web_is_served('a long statement', 'SELECT pg_sleep(600)');
  web_is_served('a procedure that commits inside', 'CALL many()');
  web_is_served('a function that runs statements', 'SELECT deep()');
  web_is_served('a DO block', 'DO $$ BEGIN PERFORM deep(); END $$');
  web_is_served('several statements at once', 'INSERT INTO orders VALUES (0); SELECT pg_sleep(600)');
  my $parallel = $server->parallel_setting;
  web_is_served('a query with parallel workers', "SET $parallel = on; SELECT count(*) FROM orders, (SELECT pg_sleep(600)) s");
  $server->ledger_is_zero('the ledger is zero', open => 1);
};

subtest 'a connection goes back to the pool and serves web requests again' => sub {
  my $wire = begin_job($server->connect('shop'));
  $wire->run('BEGIN');
  $wire->run('SELECT 1');
  is($server->holders('batch'), 1, 'as a job it runs in the class of jobs');
  # A permit belongs to the transaction: what is set inside counts from the next one.
  $wire->run('RESET pg_sluice.class');
  $wire->run('SELECT 2');
  is($server->holders('batch'), 1, 'the transaction that is running stays there');
  $wire->run('COMMIT');
  $wire->run('BEGIN');
  $wire->run('SELECT 3');
  is($server->holders('interactive'), 1, 'the next one is a web request');
  $wire->run('COMMIT');
  $wire->run('BEGIN');
  $wire->run(q{SET LOCAL pg_sluice.class = 'batch'});
  $wire->run('SELECT 4');
  is($server->holders('batch'), 1, 'SET LOCAL makes a job of one transaction');
  $wire->run('COMMIT');
  $wire->run('BEGIN');
  $wire->run('SELECT 5');
  is($server->holders('interactive'), 1, 'and of no other one');
  $wire->run('COMMIT');
  begin_job($wire);
  $wire->run('DISCARD ALL');
  $wire->run('BEGIN');
  $wire->run('SELECT 6');
  is($server->holders('interactive'), 1, 'DISCARD ALL takes the declaration away as well');
  $wire->run('COMMIT');
  end_job($wire);
  $server->ledger_is_zero('the ledger is zero', open => 1);
};

$web->close;
$server->ledger_is_zero('the ledger is zero');
is($server->value('SELECT count(*) FROM sluice.reconcile()'), 0, 'reconcile() is empty');
$server->server_log_is_clean('jobs of one role: nothing crashed');
done_testing();
