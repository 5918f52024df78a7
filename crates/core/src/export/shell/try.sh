# Every try has a directory of its own.
mkdir "try-$FATHOM_TRY" && cd "try-$FATHOM_TRY" || exit 2
directory=$PWD

