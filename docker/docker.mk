# Docker targets, included by the Makefile: `make deploy NODES=5 CONFIG="strategy='cosage'"`.

.PHONY: deploy deploy-down test-docker
export NODES

deploy: ## Train with a server and NODES devices in containers: start, enrol, submit, fetch the results
	@docker/forager.sh deploy

deploy-down: ## Stop and remove these containers; keys, device states and results stay
	@docker/forager.sh down

test-docker: ## Try the containers for real, with kills and restarts (some 15 minutes; may need root)
	@docker/test_docker.sh
