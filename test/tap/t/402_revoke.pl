# What was committed while a statement was queued is seen: a REVOKE above all.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Test::More;

my $server = Sluice->start('revoke', roles => [qw(app)], conf => { max_connections => 30 });
$server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => $PATIENT } } });
my ($holder, $reader) = map { $server->connect('app') } 1 .. 2;

# Runs `messages` queued behind a full class and `meanwhile` before it is let in; the answer.
sub answer_after {
  my ($messages, $meanwhile) = @_;
  $holder->run('BEGIN');
  $holder->run('SELECT 1');
  $reader->send_raw($messages);
  $server->wait_waiters(1) or return { error => { code => 'never queued' } };
  $server->run($meanwhile);
  $holder->run('COMMIT');
  my $answer = $reader->finish;
  $reader->run('ROLLBACK') if $reader->status ne 'I';
  return $answer;
}

my $simple = \&Sluice::Wire::query_message;
sub extended { return Sluice::Wire::extended_messages(@_) . Sluice::Wire::sync_message(); }

subtest 'a REVOKE committed while a statement was queued is seen' => sub {
  for my $case (
    [ 'SELECT', $simple->('SELECT * FROM secret') ], [ 'SELECT, extended', extended('SELECT * FROM secret') ],
    [ 'COPY', $simple->('COPY secret TO STDOUT') ], [ 'INSERT', $simple->('INSERT INTO secret VALUES (2)') ],
    [ 'INSERT RETURNING', $simple->('INSERT INTO secret VALUES (2) RETURNING i') ],
    [ 'EXECUTE', $simple->('EXECUTE p') ], [ 'DECLARE CURSOR', $simple->('BEGIN; DECLARE c CURSOR FOR SELECT * FROM secret; FETCH c; COMMIT') ],
    [ 'CREATE TABLE AS', $simple->('CREATE TEMP TABLE stolen AS SELECT * FROM secret') ],
    [ 'DO', $simple->('DO $$ BEGIN PERFORM i FROM secret; END $$') ], [ 'EXPLAIN ANALYZE', $simple->('EXPLAIN ANALYZE SELECT * FROM secret') ],
    [ 'within REPEATABLE READ', $simple->('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM secret; COMMIT') ]) {
    my ($name, $messages) = @$case;
    $server->run('DROP TABLE IF EXISTS secret; CREATE TABLE secret (i int); INSERT INTO secret VALUES (1); GRANT SELECT, INSERT ON secret TO app');
    $reader->query('DEALLOCATE ALL');
    $reader->run('PREPARE p AS SELECT * FROM secret');
    my $answer = answer_after($messages, 'REVOKE ALL ON secret FROM app');
    is($answer->{error} ? $answer->{error}{code} : 'no error', '42501', "$name: permission denied");
    is(scalar @{ $answer->{rows} // [] }, 0, "$name: no row came");
  }
  $server->ledger_is_zero('the ledger is zero', open => 1);
};

subtest 'a REVOKE of EXECUTE is seen by CALL' => sub {
  $server->run(q{CREATE PROCEDURE nothing() LANGUAGE sql AS ''; REVOKE ALL ON PROCEDURE nothing FROM PUBLIC; GRANT EXECUTE ON PROCEDURE nothing TO app});
  is(answer_after($simple->('CALL nothing()'), 'SELECT 1')->{error}, undef, 'CALL succeeds while it is granted');
  my $call = answer_after($simple->('CALL nothing()'), 'REVOKE ALL ON PROCEDURE nothing FROM app');
  is($call->{error} ? $call->{error}{code} : 'no error', '42501', 'CALL: permission denied');
  $server->ledger_is_zero('the ledger is zero', open => 1);
};

subtest 'a REVOKE of EXECUTE is seen by a function call message' => sub {
  $server->run(q{CREATE FUNCTION five() RETURNS int LANGUAGE sql AS 'SELECT 5'; REVOKE ALL ON FUNCTION five FROM PUBLIC; GRANT EXECUTE ON FUNCTION five TO app});
  my $message = Sluice::Wire::function_call_message($server->value(q{SELECT 'five()'::regprocedure::oid}));
  my $answer = answer_after($message, 'SELECT 1');
  is($answer->{error}, undef, 'the call succeeds while it is granted');
  like($answer->{types}, qr/V/, 'and returns a value');
  $answer = answer_after($message, 'REVOKE ALL ON FUNCTION five FROM app');
  is($answer->{error} ? $answer->{error}{code} : 'no error', '42501', 'permission denied');
  unlike($answer->{types}, qr/V/, 'and no value came');
  $server->ledger_is_zero('the ledger is zero', open => 1);
};

$server->server_log_is_clean('nothing crashed');
done_testing();
