# Transactions that take turns: one holds a permit, others queue behind it, and whoever is granted ends for the next one.
package Sluice::Turns;

use strict;
use warnings;
use Exporter 'import';
use Sluice;
use Test::More;

our @EXPORT = qw(hold queue_up end granted drain);

# Begins a transaction that has its permit.
sub hold { my ($wire) = @_; $wire->run('BEGIN'); $wire->run('SELECT 1'); return $wire; }

# Begins one whose permit is asked for and not waited for.
sub queue_up { my ($wire) = @_; $wire->run('BEGIN'); $wire->send_query('SELECT 1'); return $wire; }

sub end { my ($wire) = @_; $wire->run('COMMIT'); return; }

# The one of the waiting sessions that was granted, whoever it is.
sub granted {
  my (@waiting) = @_;
  my $found;
  wait_until(sub { ($found) = grep { $_->readable } @waiting; defined $found }, 'somebody is granted') or return undef;
  my $error = $found->finish->{error};
  diag(Sluice::Wire::describe($error)) if $error;
  return $found;
}

# Ends what is granted until all have been.
sub drain {
  my (@wires) = @_;
  while (@wires) {
    my $next = granted(@wires) // last;
    end($next);
    @wires = grep { $_ != $next } @wires;
  }
  return;
}

1;
