# One DDL in front of 800 queued readers of the table: every reader holds its relation lock from parse analysis, the ALTER TABLE holds
# a permit and waits for all of them. They are let through, the queue is not flushed, and the ALTER is not kept waiting (case F11).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Test::More;
use Time::HiRes qw(time sleep);

my $readers = 800;

my $server = Sluice->start('alter', roles => ['app'], conf => { max_connections => $readers + 40, shared_buffers => "'64MB'" });
$server->run('CREATE TABLE t (id int); INSERT INTO t SELECT generate_series(1, 100); ALTER TABLE t OWNER TO app');
my ($work, @reader);

sub policy {
  my ($permits) = @_;
  return {
    serverSessionPermits => $readers + 20, overdraft => { max => 2 },
    classes => { interactive => { permits => $permits, maxQueue => 1000, queueDeadlineMs => $PATIENT } } };
}

# `permits` holders sit in their transactions, the readers queue, then one holder sends the ALTER TABLE; with `others_end` the other
# holders commit at the same moment, otherwise they go on holding their permits and only the overdraft can serve the readers.
sub alter_in_front {
  my ($name, %arg) = @_;
  subtest $name => sub {
    $server->apply(policy($arg{permits}), over_limit => 'drain');
    my @holder = map { $server->connect('app') } 1 .. $arg{permits};
    for my $holder (@holder) { $holder->run('BEGIN'); $holder->run('SELECT 1'); }
    $_->send_query('SELECT count(*) FROM t') for @reader;
    ok($server->wait_waiters($readers), "$readers readers are queued");
    my $ddl = shift @holder;
    my $started = time;
    $ddl->send_query('ALTER TABLE t ADD COLUMN ' . $arg{column} . ' int');
    if ($arg{others_end}) {
      ok(wait_until(sub { $server->value('SELECT count(*) FROM pg_locks WHERE NOT granted') > 0 }, 'lock wait'), 'the ALTER TABLE waits for them');
      $started = time;
      $_->send_query('COMMIT') for @holder;
    }
    my $altered = $ddl->finish;
    my $took = time - $started;
    is($altered->{error}, undef, 'the ALTER TABLE succeeds') or diag(Sluice::Wire::describe($altered->{error}));
    $ddl->send_query('COMMIT');
    if ($arg{others_end}) { $_->finish for @holder; }
    $ddl->finish;
    my @refused = grep { $_->{error} } map { $_->finish } @reader;
    diag(sprintf '%s: the ALTER TABLE took %.2f s (the readers alone %.2f s), %d of %d readers were refused, overdraft granted %d', $name, $took, $work,
      scalar @refused, $readers, $server->status('overdraft_granted'));
    diag(Sluice::Wire::describe($refused[0]{error})) if @refused;
    cmp_ok(scalar @refused, '<=', $readers / 100, 'at most one reader in a hundred is refused');
      $_->run('ROLLBACK') for $arg{others_end} ? () : @holder;
    is($server->status('over_limit_grants'), 0, 'no grant was above its limit');
    $server->ledger_is_zero('the ledger is zero', open => 1);
    $_->close for $ddl, @holder;
  };
}

# What 800 readers take by themselves on this machine: queued behind eight permits that then become free.
sub work_of_readers {
  my @holder = map { $server->connect('app') } 1 .. 8;
  for my $holder (@holder) { $holder->run('BEGIN'); $holder->run('SELECT 1'); }
  $_->send_query('SELECT count(*) FROM t') for @reader;
  ok($server->wait_waiters($readers), "$readers readers are queued");
  my $started = time;
  $_->send_query('COMMIT') for @holder;
  $_->finish for @reader;
  my $took = time - $started;
  $_->finish for @holder;
  $_->close for @holder;
  return $took;
}

$server->apply(policy(8));
@reader = map { $server->connect('app') } 1 .. $readers;
$work = work_of_readers();
diag(sprintf '%d readers alone take %.2f s', $readers, $work);
alter_in_front('case F11: readers drain through normal releases', permits => 8, others_end => 1, column => 'a');
alter_in_front('case F11: readers drain through the overdraft alone', permits => 1, others_end => 0, column => 'b');

$server->server_log_is_clean('alter table: nothing crashed');
done_testing();
