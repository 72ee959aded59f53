# A permit that is lent can close a lock cycle that neither class sees by itself: the borrower waits for a lock of a transaction that
# waits for the very permit that was lent (requirements A14, A12; case F11).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Sluice::Turns;
use Test::More;

my $server = Sluice->start('lent', roles => [qw(app batch)], conf => { max_connections => 40 });
$server->run('CREATE TABLE t (id int); INSERT INTO t SELECT generate_series(1, 10); ALTER TABLE t OWNER TO batch; GRANT SELECT ON t TO app');
my $columns = 0;

sub apply {
  my ($on_expiry, $ttl, $overdraft) = @_;
  return $server->apply({ classes => { interactive => { permits => 2, queueDeadlineMs => $PATIENT },
      batch => { permits => 1, queueDeadlineMs => $PATIENT, borrow => { from => ['interactive'], max => 1, ttlMs => $ttl, onExpiry => $on_expiry } } },
    assign => [ { role => 'batch', class => 'batch' } ], overdraft => { max => $overdraft } }, over_limit => 'drain');
}

# batch has one permit of its own and one of interactive's two; interactive uses its other one. A reader of the table queues for the
# lent one with its relation lock; the borrower's ALTER TABLE waits for that lock.
sub close_the_cycle {
  my %of = (own => hold($server->connect('batch')), borrower => $server->connect('batch'));
  $of{borrower}->run('BEGIN');
  $of{borrower}->send_query('SELECT 1');
  ok($server->wait_holders(2, 'batch'), 'batch is lent a permit');
  is($of{borrower}->finish->{error}, undef, 'and its second transaction runs');
  my $pid = $of{borrower}->pid;
  # Which of the two holds the lent one is the ledger's affair; the table's lock must be wanted by that one.
  @of{qw(own borrower)} = @of{qw(borrower own)} if $server->value("SELECT source FROM sluice.tickets WHERE pid = $pid") ne 'borrowed';
  $of{holder} = hold($server->connect('app'));
  $of{reader} = $server->connect('app');
  $of{reader}->send_query('SELECT count(*) FROM t');
  ok($server->wait_waiters(1, 'interactive'), 'the lender queues for what it lent');
  $of{borrower}->send_query('ALTER TABLE t ADD COLUMN c' . ++$columns . ' int');
  return \%of;
}

sub end_all { my ($of, @open) = @_; $_->run('COMMIT') for @$of{@open}; return; }

subtest 'case F11: the cycle through a lent permit is dissolved by the overdraft' => sub {
  apply('mark', 300, 1);
  for my $round (1 .. 3) {
    my $granted = $server->status('overdraft_granted');
    my $of = close_the_cycle();
    my $read = $of->{reader}->finish;
    is($read->{error}, undef, "round $round: the reader is let through") or diag(Sluice::Wire::describe($read->{error}));
    is($of->{borrower}->finish->{error}, undef, "round $round: and the borrower has its lock");
    is($server->status('overdraft_granted'), $granted + 1, "round $round: by one overdraft permit");
    is($server->status('borrow_cancels'), 0, "round $round: nothing was cancelled");
    $of->{borrower}->run('COMMIT');
    ok($server->wait_holders(1, 'batch'), "round $round: the lent permit is back");
    is($server->value(q{SELECT string_agg(borrowed || ' ' || lent, ', ' ORDER BY class) FROM sluice.classes}), '0 0, 0 0', "round $round: nothing is owed");
    end_all($of, qw(own holder));
    $server->ledger_is_zero("round $round: the ledger is zero");
  }
};

subtest 'case F11: without an overdraft the recall of the lent permit dissolves it' => sub {
  apply('cancel', 300, 0);
  my $of = close_the_cycle();
  my $error = $of->{borrower}->finish->{error};
  # A machine that gives the backend no turn for a second has it terminated instead.
  like($error->{code} // '', qr/^(57014|57P01)$/, 'the borrower is cancelled, because its lender queues') or diag(Sluice::Wire::describe($error));
  is($of->{reader}->finish->{error}, undef, 'the reader runs on the permit that came back');
  is($server->status('borrow_cancels'), 1, 'which is counted');
  is($server->status('overdraft_granted'), 3, 'and took no overdraft');
  $of->{borrower}->close;
  end_all($of, qw(own holder));
  $server->ledger_is_zero('the ledger is zero');
};

# Where neither is allowed only somebody's end helps: the lender's holder is the one that can give a permit back.
subtest 'case F11: with neither the next release of the lender serves the reader' => sub {
  apply('mark', 300, 0);
  my $of = close_the_cycle();
  ok(wait_until(sub { $server->value(q{SELECT count(*) FROM sluice.events WHERE event = 'borrow_expired'}) > 0 }, 'the ttl to pass'), 'the ttl passes and is told');
  ok(!$of->{reader}->readable && !$of->{borrower}->readable, 'both still wait');
  $of->{holder}->run('COMMIT');
  is($of->{reader}->finish->{error}, undef, 'the reader has the permit of the lender\'s holder');
  is($of->{borrower}->finish->{error}, undef, 'and the borrower its lock');
  end_all($of, qw(own borrower));
  $server->ledger_is_zero('the ledger is zero');
};

is(scalar(@{ $server->discrepancies }), 0, 'reconcile() has no row');
is($server->status('over_limit_grants'), 0, 'no grant was above a limit');
$server->server_log_is_clean('lock cycles with borrowed permits: nothing crashed');
done_testing();
