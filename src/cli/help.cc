#include "cli/help.h"

namespace sluice::cli {

const char kSluiceHelp[] = R"(NAME
    sluice - admission control for PostgreSQL: the operator's command

SYNOPSIS
    sluice policy lint FILE.yaml [OPTION...]
    sluice policy publish FILE.yaml [--dsn CONNINFO] [--activate]
    sluice proxy --config FILE.toml [--check-config]
    sluice --help | --version

DESCRIPTION
    Works on policy documents (dbAdmissionPolicy.v1) of the extension pg_sluice. The fields of a policy, their units and
    defaults are in docs/policy.md; config/ holds examples.

COMMANDS
    policy lint       checks a policy file and prints what is wrong or doubtful, with line, arithmetic and fix
    policy publish    checks a policy file and stores it on a server as a new generation
    proxy             the connection pooler in front of a server; checks its configuration

OPTIONS
    -h, --help        this text; also behind each command
    --version         the version

EXIT STATUS
    0  done; a policy or a configuration is valid, with or without warnings
    1  a policy or a configuration was refused, or the server answered with an error
    2  wrong usage, or a file that cannot be read
)";

const char kPolicyHelp[] = R"(NAME
    sluice policy - checks and publishes policy documents

SYNOPSIS
    sluice policy lint FILE.yaml [OPTION...]
    sluice policy publish FILE.yaml [--dsn CONNINFO] [--activate]

OPTIONS
    -h, --help        this text; `sluice policy lint --help` and `sluice policy publish --help` say more
)";

const char kLintHelp[] = R"(NAME
    sluice policy lint - checks a policy file

SYNOPSIS
    sluice policy lint FILE.yaml [--max-connections N [SERVER OPTION...]]

DESCRIPTION
    Reads the file with the validator the server uses and prints every finding:

        FILE:LINE: error: PATH: MESSAGE
            fix: WHAT TO DO

    Without --max-connections the sums are checked within the document only. FILE may be - for standard input. The file
    is YAML without anchors, aliases, merge keys and tags; JSON is accepted too.

OPTIONS
    --max-connections N                 check the budget against a server with this max_connections
    --superuser-reserved-connections N  the server's setting of that name (default 3)
    --reserved-connections N            the server's setting of that name, PostgreSQL 16 and later (default 0)
    --max-wal-senders N                 the server's setting of that name (default 10)
    --label LABEL                       the server's pg_sluice.label (default: the document's own is taken as right)
    --newest-generation N               the newest generation published there (default 0: none)
    -h, --help                          this text

EXIT STATUS
    0  valid, with or without warnings
    1  refused
    2  wrong usage, or a file that cannot be read

EXAMPLES
    sluice policy lint config/policy-short.yaml
    sluice policy lint orders.yaml --max-connections 200 --label orders-primary
)";

const char kPublishHelp[] = R"(NAME
    sluice policy publish - stores a policy on a server as a new generation

SYNOPSIS
    sluice policy publish FILE.yaml [--dsn CONNINFO] [--activate [--drain]]

DESCRIPTION
    Checks the file as `sluice policy lint` does and calls sluice.publish() on the server, which checks it against its
    own settings. A published generation starts in shadow: it counts what it would do and touches nothing. With
    --activate it is then enforced by sluice.activate(), which prints what is now, its peak and the limit for each
    class, tenant, database and role.

    The database to connect to is that of pg_sluice.database; the role needs EXECUTE on the two functions. FILE may be -
    for standard input.

OPTIONS
    --dsn CONNINFO    a libpq connection string, URI or database name (default: PGHOST, PGPORT, PGDATABASE, PGUSER, ...)
    --activate        enforce the new generation at once
    --drain           with --activate: also while something is over its new limit; what is open stays, nobody new is
                      admitted there until it is below
    -h, --help        this text

EXIT STATUS
    0  published (and enforced)
    1  refused by the check or by the server; the server's message, DETAIL and HINT are printed
    2  wrong usage, or a file that cannot be read

EXAMPLES
    sluice policy publish orders.yaml --dsn 'host=/run/postgresql dbname=postgres'
    sluice policy publish orders.yaml --dsn postgresql://admin@db1/postgres --activate
)";

const char kProxyHelp[] = R"(NAME
    sluice proxy - the connection pooler in front of a PostgreSQL server

SYNOPSIS
    sluice proxy --config FILE.toml --check-config
    sluice proxy --print-example | --print-settings

DESCRIPTION
    The configuration is TOML; every setting has a default and can be given in the environment as well, which wins:
    SLUICE_PROXY_SECTION_KEY, as in SLUICE_PROXY_POOL_MAX_SIZE=20. docs/proxy-settings.md lists all of them.

    What is wrong is printed with its place and what to do about it:

        FILE:LINE:COLUMN: error: SECTION.KEY: MESSAGE
            fix: WHAT TO DO

OPTIONS
    --config FILE.toml  the configuration; without it defaults and environment only
    --check-config      checks it, certificates and other files included, and ends
    --print-example     prints a file with every setting and its default
    --print-settings    prints the same as a page of documentation
    -h, --help          this text

EXIT STATUS
    0  done, or the configuration is valid, with or without warnings
    1  it was refused
    2  wrong usage
)";

}  // namespace sluice::cli
