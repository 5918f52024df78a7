/* The program runs in a child: a call that never returns, or ends the process, is what was found. Goes
 * on in the child, with the number of the try; the parent ends here. */
static unsigned watch_over(unsigned tries, unsigned seconds)
{
    for (unsigned number = 1; number <= tries; number++) {
        int status = 0;
        pid_t child;
        fflush(stdout);
        child = fork();
        if (child < 0)
            harness_failed("fork");
        if (child == 0)
            return number;
        for (unsigned waited = 0; waitpid(child, &status, WNOHANG) == 0; waited++) {
            if (waited >= seconds * 100) {
                printf("\nno end within %u s: the bug is there\n", seconds);
                kill(child, SIGKILL);
                exit(1);
            }
            usleep(10000);
        }
        if (WIFSIGNALED(status)) {
            printf("\nended by signal %d: the bug is there\n", WTERMSIG(status));
            exit(1);
        }
        if (WEXITSTATUS(status) != 0)
            exit(WEXITSTATUS(status));
    }
    exit(0);
}
