# Every process waits for what rank 0 says, wherever that runs.
if [ "$KOALA_RANK" = 0 ]; then
    "$KOALA_RENDEZVOUS" put greeting "hello from $(hostname)"
fi
echo "rank $KOALA_RANK of $KOALA_SIZE, component $KOALA_COMPONENT: $("$KOALA_RENDEZVOUS" get greeting)"
