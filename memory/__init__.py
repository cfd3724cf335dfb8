"""What is remembered: the run database, the artifact store and the home folder that holds them."""
