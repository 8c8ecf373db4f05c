/* A ring of MPI worlds: every component of the job is a world of its own, and rank 0 of each is joined to the next one's
 * by TCP. The sum of all ranks of the job goes round, and every rank prints it. The worlds may be of different MPIs.
 */
#include <mpi.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void fail(const char *what) {
    perror(what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static int number(const char *name) {
    const char *value = getenv(name);
    if (value == NULL) {
        fprintf(stderr, "%s is not set: run this by koalapy.\n", name);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return atoi(value);
}

/* The address by which others reach this rank: line KOALA_RANK of KOALA_HOSTS is "COMPONENT ADDRESS". */
static void own_address(char *address) {
    FILE *hosts = fopen(getenv("KOALA_HOSTS"), "r");
    if (hosts == NULL) fail("KOALA_HOSTS");
    for (int line = 0; line <= number("KOALA_RANK"); line++)
        if (fscanf(hosts, "%*d %63s", address) != 1) fail("KOALA_HOSTS");
    fclose(hosts);
}

static void put(int world, const char *address, int port) {
    char command[256];
    snprintf(command, sizeof command, "\"$KOALA_RENDEZVOUS\" put ring/%d '%s %d'", world, address, port);
    if (system(command) != 0) fail("KOALA_RENDEZVOUS");
}

/* Waits until that world has put its address. */
static void get(int world, char *address, char *port) {
    char command[256];
    snprintf(command, sizeof command, "\"$KOALA_RENDEZVOUS\" get ring/%d", world);
    FILE *answer = popen(command, "r");
    if (answer == NULL || fscanf(answer, "%63s %7s", address, port) != 2) fail("KOALA_RENDEZVOUS");
    pclose(answer);
}

static int listen_anywhere(int *port) {
    struct sockaddr_storage bound;
    socklen_t size = sizeof bound;
    char text[8];
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
    if (getaddrinfo(NULL, "0", &hints, &found) != 0) fail("getaddrinfo");
    int listener = socket(found->ai_family, found->ai_socktype, 0);
    if (listener < 0 || bind(listener, found->ai_addr, found->ai_addrlen) < 0 || listen(listener, 1) < 0) fail("listen");
    freeaddrinfo(found);
    getsockname(listener, (struct sockaddr *)&bound, &size);
    getnameinfo((struct sockaddr *)&bound, size, NULL, 0, text, sizeof text, NI_NUMERICSERV);
    *port = atoi(text);
    return listener;
}

static int connect_to(const char *address, const char *port) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo(address, port, &hints, &found) != 0) fail(address);
    int joined = socket(found->ai_family, found->ai_socktype, 0);
    if (joined < 0 || connect(joined, found->ai_addr, found->ai_addrlen) < 0) fail(address);
    freeaddrinfo(found);
    return joined;
}

/* The sum over all worlds: what comes from the world before is added, and passed on once. */
static long round_the_ring(long mine, int world, int worlds) {
    char address[64], port[8];
    int own_port, listener = listen_anywhere(&own_port);
    own_address(address);
    put(world, address, own_port);
    get((world + 1) % worlds, address, port);
    int next = connect_to(address, port), previous = accept(listener, NULL, NULL);
    if (previous < 0) fail("accept");
    long sum = mine, passing = mine;
    for (int step = 1; step < worlds; step++) {
        char line[32];
        int length = snprintf(line, sizeof line, "%31ld", passing);
        if (write(next, line, length) != length) fail("write");
        if (recv(previous, line, length, MSG_WAITALL) != length) fail("read");
        passing = atol(line);
        sum += passing;
    }
    return sum;
}

int main(int argc, char **argv) {
    int rank, size, length;
    char node[MPI_MAX_PROCESSOR_NAME];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(node, &length);
    int world = number("KOALA_COMPONENT"), worlds = number("KOALA_COMPONENTS");
    long own = number("KOALA_RANK"), sum = 0;
    MPI_Reduce(&own, &sum, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0 && worlds > 1) sum = round_the_ring(sum, world, worlds);
    MPI_Bcast(&sum, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    printf("rank %d of %d in world %d on %s: sum %ld\n", rank, size, world, node, sum);
    MPI_Finalize();
    return 0;
}
